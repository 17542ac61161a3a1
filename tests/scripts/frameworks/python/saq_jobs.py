"""SAQ: two worker processes, results, scheduled jobs, retries, aborted jobs, cron. Its sweep may
take a job that was just fetched for a stuck one, so jobs have more than one try. Its own way to wait
for the end of a job looks first and subscribes then, so it can miss the end: here it only looks."""
# needs: saq[redis]==0.26.4 typing_extensions==4.15.0

import asyncio
import time

from saq import CronJob, Queue
from cases import JOBS, URL, await_true, case, equal, kill, mark, marks, say, workers


async def leave(_, *, n):
    mark(n)
    return n


async def add(_, *, a, b):
    return a + b


async def fail_once(context):
    if context["job"].attempts == 1:
        raise ValueError("on purpose")
    return context["job"].attempts


async def wait(_):
    await asyncio.sleep(60)


async def tick(_):
    mark("tick")


queue = Queue.from_url(URL, name="saq")
settings = {
    "queue": queue, "functions": [leave, add, fail_once, wait], "concurrency": 4,
    "cron_jobs": [CronJob(tick, cron="* * * * * */1")],
    "timers": {"schedule": 1, "sweep": 60, "abort": 1},
}


async def ended(job, limit_s=30):
    end = time.monotonic() + limit_s
    while not job.completed:
        if time.monotonic() > end:
            raise TimeoutError(f"{job.key} is {job.status} after {limit_s} s")
        await asyncio.sleep(0.05)
        await job.refresh()


async def many():
    sent = [await queue.enqueue("leave", n=n, retries=3) for n in range(JOBS // 2)]
    while len(marks()) < JOBS // 4:
        await asyncio.sleep(0.05)
    kill()
    sent += [await queue.enqueue("leave", n=n, retries=3) for n in range(JOBS // 2, JOBS)]
    try:
        for job in sent:
            await ended(job)
            equal(str(job.status.value), "complete")
    finally:
        found = {n: times for n, times in marks().items() if n != "tick"}
        say("jobs", JOBS, len(found), sum(found.values()) - len(found))
    equal([job.result for job in sent], list(range(JOBS)))


async def scheduled():
    job = await queue.enqueue("add", a=1, b=2, scheduled=int(time.time()) + 1)
    await ended(job)
    equal(job.result, 3)


async def unique():
    first = await queue.enqueue("wait", key="once")
    equal(await queue.enqueue("wait", key="once"), None)
    while str(first.status.value) != "active":
        await asyncio.sleep(0.1)
        await first.refresh()
    await first.abort("on purpose")
    await ended(first)
    equal(str(first.status.value), "aborted")


async def info():
    found = await queue.info(jobs=True)
    equal([len(found["workers"]), found["queued"]], [2, 0])


def main():
    workers("saq", "saq_jobs.settings")
    loop = asyncio.new_event_loop()
    run = loop.run_until_complete
    run(queue.connect())
    case("jobs", lambda: run(asyncio.wait_for(many(), 100)))
    case("apply", lambda: equal(run(queue.apply("add", a=1, b=2, timeout=30)), 3))
    case("map", lambda: equal(
        run(queue.map("add", [{"a": n, "b": n} for n in range(10)], timeout=30)),
        [2 * n for n in range(10)]))
    case("scheduled", lambda: run(scheduled()))
    case("retry", lambda: equal(run(queue.apply("fail_once", retries=3, timeout=30)), 2))
    case("unique", lambda: run(unique()))
    case("cron", lambda: await_true("two ticks", lambda: marks()["tick"] >= 2))
    case("info", lambda: run(info()))


if __name__ == "__main__":
    main()
