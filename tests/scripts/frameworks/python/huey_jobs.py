"""huey: two consumer processes; its queue as a list, and as a sorted set with priorities."""
# needs: huey==3.5.4 redis==5.3.1

import os

from huey import PriorityRedisHuey, RedisHuey
from huey.exceptions import TaskException
from cases import DIR, JOBS, PORT, case, equal, jobs, mark, workers

huey = RedisHuey("plain", host="127.0.0.1", port=PORT)
ranked = PriorityRedisHuey("ranked", host="127.0.0.1", port=PORT)


@huey.task()
def leave(n):
    mark(n)
    return n


@huey.task()
def add(a, b):
    return a + b


@huey.task(retries=2, retry_delay=1)
def fail_once():
    try:
        os.mkdir(os.path.join(DIR, "failed"))
    except FileExistsError:
        return "again"
    raise ValueError("on purpose")


@ranked.task()
def subtract(a, b):
    return a - b


def retry():
    """Each failure is a result, until the one after it."""
    result = fail_once()
    try:
        result.get(blocking=True, timeout=30)
        raise AssertionError("it did not fail")
    except TaskException:
        result.reset()
    equal(result.get(blocking=True, timeout=30), "again")


def pipeline():
    result = huey.enqueue(add.s(1, 2).then(add, 3).then(add, 4))
    equal(result.get(blocking=True, timeout=30), [3, 6, 10])


def main():
    for queue in ("huey", "ranked"):
        workers("huey_consumer", f"huey_jobs.{queue}", "-w", "2", "-q")
    results = []
    case("jobs", jobs, lambda n: results.append(leave(n)))
    case("results", lambda: equal(
        [r.get(blocking=True, timeout=30) for r in results], list(range(JOBS))))
    case("delay", lambda: equal(add.schedule((1, 2), delay=1).get(blocking=True, timeout=30), 3))
    case("retry", retry)
    case("pipeline", pipeline)
    case("priority", lambda: equal(
        [subtract(n, 1, priority=n).get(blocking=True, timeout=30) for n in range(1, 5)],
        [0, 1, 2, 3]))
    case("lock", lambda: huey.lock_task("a lock").__enter__())
    case("pending", lambda: (equal(huey.pending(), []), equal(ranked.pending(), [])))
    case("flush", lambda: (huey.storage.flush_all(), ranked.storage.flush_all()))


if __name__ == "__main__":
    # Tasks are known by the name of their module, which workers import.
    import huey_jobs
    huey_jobs.main()
