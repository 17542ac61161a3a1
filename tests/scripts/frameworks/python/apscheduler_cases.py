"""APScheduler with its job store in Redis: jobs that outlive their scheduler."""
# needs: APScheduler==3.11.3 redis==5.3.1

import datetime

from apscheduler.jobstores.redis import RedisJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from cases import PORT, await_true, case, equal, kill, mark, marks

COUNT = 60


def scheduler():
    it = BackgroundScheduler(jobstores={"default": RedisJobStore(port=PORT)})
    it.start()
    return it


def later(n):
    return datetime.datetime.now() + datetime.timedelta(seconds=n)


def once():
    it = scheduler()
    for n in range(COUNT):
        it.add_job(mark, "date", [n], run_date=later(n / 20), misfire_grace_time=100)
        if n == COUNT // 2:
            kill()
    await_true("all jobs", lambda: len(marks()) == COUNT)
    await_true("no job", lambda: it.get_jobs() == [])
    it.shutdown()


def kept():
    first = scheduler()
    first.add_job(mark, "interval", ["kept"], seconds=0.3, id="kept")
    first.add_job(mark, "date", ["never"], run_date=later(1000), id="never")
    first.shutdown()
    second = scheduler()
    equal(sorted(job.id for job in second.get_jobs()), ["kept", "never"])
    await_true("three times", lambda: marks()["kept"] >= 3)
    second.reschedule_job("never", trigger="date", run_date=later(0))
    await_true("once", lambda: marks()["never"] == 1)
    second.pause_job("kept")
    second.remove_all_jobs()
    equal(second.get_jobs(), [])
    second.shutdown()


case("once", once)
case("kept", kept)
