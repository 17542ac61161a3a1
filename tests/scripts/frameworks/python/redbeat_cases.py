"""RedBeat: Celery's beat with its schedule and its lock in Redis."""
# needs: celery-redbeat==2.4.2 celery[redis]==5.6.3

from celery import Celery
from celery.schedules import schedule
from redbeat import RedBeatSchedulerEntry
from cases import TAGGED, URL, await_true, case, equal, kill, mark, marks, workers

app = Celery("redbeat_cases", broker=URL, backend=URL)
prefix = {"global_keyprefix": "{celery}:"} if TAGGED else {}
app.conf.update(
    broker_connection_retry_on_startup=True, broker_transport_options=prefix,
    result_backend_transport_options=prefix, redbeat_lock_timeout=10, beat_max_loop_interval=1,
    redbeat_key_prefix="{redbeat}:" if TAGGED else "redbeat:",
    beat_schedule={"static": {"task": "redbeat_cases.leave", "schedule": 1, "args": ["static"]}})


@app.task
def leave(n):
    mark(n)


def times(name, count):
    await_true(f"{name} {count} times", lambda: marks()[name] >= count)


def main():
    workers("celery", "-A", "redbeat_cases", "worker", "-c", "1", "-l", "warning", count=1)
    # The second one waits for the lock of the first one.
    workers("celery", "-A", "redbeat_cases", "beat", "-S", "redbeat.RedBeatScheduler", "--pidfile=",
            "-l", "warning")
    case("static", times, "static", 2)
    entry = RedBeatSchedulerEntry("dynamic", "redbeat_cases.leave", schedule(1), args=["dynamic"],
                                  app=app)
    case("save", entry.save)
    case("dynamic", times, "dynamic", 2)
    kill()
    before = marks()
    case("goes-on", lambda: (times("dynamic", before["dynamic"] + 3),
                             times("static", before["static"] + 3)))
    case("found", lambda: equal(
        RedBeatSchedulerEntry.from_key(entry.key, app=app).total_run_count >= 5, True))
    case("delete", entry.delete)


if __name__ == "__main__":
    main()
