"""RQ: jobs, dependent jobs, scheduled jobs, retries, registries."""

import datetime
import os

import redis
from cases import DIR, PORT, URL, await_true, case, equal, jobs, mark, workers

# Workers import the functions from here.
PATH = {"PYTHONPATH": os.path.dirname(os.path.abspath(__file__))}


def add(a, b):
    return a + b


def fail():
    raise ValueError("on purpose")


def fail_once():
    try:
        os.mkdir(os.path.join(DIR, "failed"))
    except FileExistsError:
        return "again"
    raise ValueError("on purpose")


def status(job):
    return str(getattr(job.get_status(), "value", job.get_status()))


def ended(job, how="finished"):
    await_true(f"{how}, is {status(job)}", lambda: status(job) == how, 30)
    return job


def value(job):
    return job.return_value() if callable(getattr(job, "return_value", None)) else job.result


def main():
    from rq import Queue, Retry
    from rq.registry import FailedJobRegistry, FinishedJobRegistry

    workers("rq", "worker", "--url", URL, "--with-scheduler", "default", **PATH)
    connection = redis.Redis(port=PORT)
    q = Queue(connection=connection)
    case("jobs", jobs, lambda n: q.enqueue(mark, n), 60)
    case("result", lambda: equal(value(ended(q.enqueue(add, 1, 2))), 3))
    case("failure", lambda: ended(q.enqueue(fail), "failed"))
    case("retry", lambda: ended(q.enqueue(fail_once, retry=Retry(max=2))))

    def dependent():
        first = q.enqueue(add, 1, 2)
        second = q.enqueue(add, 3, 4, depends_on=first)
        equal(value(ended(second)), 7)

    case("dependent", dependent)
    case("scheduled", lambda: ended(q.enqueue_in(datetime.timedelta(seconds=1), add, 1, 2)))

    def registries():
        equal(len(FailedJobRegistry(queue=q)), 1)
        assert len(FinishedJobRegistry(queue=q)) >= 5, "finished jobs are missing"
        failed = FailedJobRegistry(queue=q)
        failed.requeue(failed.get_job_ids()[0])

    case("registries", registries)
    case("empty", lambda: q.delete(delete_jobs=True))
