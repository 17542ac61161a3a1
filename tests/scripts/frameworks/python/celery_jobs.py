"""Celery: broker and result backend, two worker processes. Its scripts and transactions use several
keys, so they need a tag as prefix of all keys, or one partition."""
# needs: celery[redis]==5.6.3

import time

from celery import Celery, chain, chord, group
from cases import JOBS, TAGGED, URL, await_true, case, equal, jobs, mark, workers

app = Celery("celery_jobs", broker=URL, backend=URL)
prefix = {"global_keyprefix": "{celery}:"} if TAGGED else {}
app.conf.update(
    task_acks_late=True, broker_connection_retry_on_startup=True, worker_prefetch_multiplier=4,
    worker_send_task_events=True, result_backend_transport_options=prefix,
    broker_transport_options={"priority_steps": [0, 5, 9], **prefix})


@app.task
def leave(n):
    mark(n)
    return n


@app.task
def add(a, b):
    return a + b


@app.task
def total(numbers):
    return sum(numbers)


@app.task(bind=True, max_retries=3, default_retry_delay=0.2)
def stubborn(self):
    if self.request.retries < 2:
        raise self.retry()
    return self.request.retries


def main():
    workers("celery", "-A", "celery_jobs", "worker", "-c", "2", "-l", "warning", "-n", "one@%h",
            count=1)
    workers("celery", "-A", "celery_jobs", "worker", "-c", "2", "-l", "warning", "-n", "two@%h",
            count=1)
    results = []
    case("jobs", jobs, lambda n: results.append(leave.delay(n)))
    case("results", lambda: equal([r.get(timeout=30) for r in results], list(range(JOBS))))
    case("retry", lambda: equal(stubborn.delay().get(timeout=30), 2))

    def countdown():
        began = time.time()
        result = add.apply_async((1, 2), countdown=2)
        equal(result.get(timeout=30), 3)
        assert time.time() - began >= 2, "it was executed before its time"

    case("countdown", countdown)
    case("group", lambda: equal(
        group(add.s(n, n) for n in range(10)).apply_async().get(timeout=30),
        [2 * n for n in range(10)]))
    case("chain", lambda: equal(chain(add.s(1, 1), add.s(2), add.s(3))().get(timeout=30), 7))
    case("chord", lambda: equal(
        chord([add.s(n, n) for n in range(10)], total.s())().get(timeout=30), 90))
    case("priority", lambda: equal(add.apply_async((1, 2), priority=9).get(timeout=30), 3))
    case("inspect", lambda: await_true(
        "two answers", lambda: len(app.control.inspect(timeout=3).ping() or {}) == 2, 15))

    def revoke():
        result = add.apply_async((1, 2), countdown=3)
        app.control.revoke(result.id)
        try:
            result.get(timeout=30)
        except Exception as error:
            equal(type(error).__name__, "TaskRevokedError")

    case("revoke", revoke)
    case("forget", lambda: [r.forget() for r in results])
    case("purge", lambda: app.control.purge())


if __name__ == "__main__":
    main()
