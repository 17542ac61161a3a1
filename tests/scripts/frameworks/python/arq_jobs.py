"""arq: two worker processes, results, deferred jobs, retries, aborted jobs."""
# needs: arq==0.28.0

import asyncio

from arq import Retry, create_pool
from arq.connections import RedisSettings
from cases import JOBS, PORT, await_true, case, equal, kill, mark, marks, say, workers


async def leave(_, n):
    mark(n)
    return n


async def add(_, a, b):
    return a + b


async def fail_once(context):
    if context["job_try"] == 1:
        raise Retry(defer=1)
    return context["job_try"]


async def sleep(_):
    await asyncio.sleep(60)


class Settings:
    functions = [leave, add, fail_once, sleep]
    redis_settings = RedisSettings(port=PORT)
    max_jobs = 4
    poll_delay = 0.05
    allow_abort_jobs = True


def main():
    workers("arq", "arq_jobs.Settings")
    loop = asyncio.new_event_loop()
    run = loop.run_until_complete
    pool = run(create_pool(Settings.redis_settings))

    def many():
        sent = [run(pool.enqueue_job("leave", n)) for n in range(JOBS // 2)]
        await_true("a quarter of the jobs", lambda: len(marks()) >= JOBS // 4)
        kill()
        sent += [run(pool.enqueue_job("leave", n)) for n in range(JOBS // 2, JOBS)]
        try:
            await_true("all jobs", lambda: len(marks()) == JOBS)
        finally:
            found = marks()
            say("jobs", JOBS, len(found), sum(found.values()) - len(found))
        equal([run(job.result(timeout=30)) for job in sent], list(range(JOBS)))

    def result(*words, **more):
        return run(run(pool.enqueue_job(*words, **more)).result(timeout=30))

    def unique():
        first = run(pool.enqueue_job("add", 1, 2, _job_id="once", _defer_by=1))
        equal(run(pool.enqueue_job("add", 1, 2, _job_id="once")), None)
        equal(run(first.result(timeout=30)), 3)

    def abort():
        job = run(pool.enqueue_job("sleep"))
        equal(run(job.abort(timeout=30)), True)

    case("jobs", many)
    case("deferred", lambda: equal(result("add", 1, 2, _defer_by=1), 3))
    case("retry", lambda: equal(result("fail_once"), 2))
    case("unique", unique)
    case("abort", abort)
    case("results", lambda: equal(len(run(pool.all_job_results())) > JOBS, True))
    case("queued", lambda: equal(run(pool.queued_jobs()), []))


if __name__ == "__main__":
    main()
