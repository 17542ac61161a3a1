"""taskiq: jobs and their results, by either broker."""

import asyncio

from cases import JOBS, await_true, case, equal, kill, mark, marks, say, workers


def tasks(broker):
    @broker.task(task_name="leave")
    async def leave(n: int) -> int:
        mark(n)
        return n

    @broker.task(task_name="add")
    async def add(a: int, b: int) -> int:
        return a + b

    return leave, add


def main(place, broker, leave, add):
    workers("taskiq", "worker", place, "--workers", "1")
    loop = asyncio.new_event_loop()
    run = loop.run_until_complete
    case("startup", lambda: run(broker.startup()))

    def many():
        sent = [run(leave.kiq(n)) for n in range(JOBS // 2)]
        await_true("a quarter of the jobs", lambda: len(marks()) >= JOBS // 4)
        kill()
        sent += [run(leave.kiq(n)) for n in range(JOBS // 2, JOBS)]
        try:
            await_true("all jobs", lambda: len(marks()) == JOBS)
        finally:
            found = marks()
            say("jobs", JOBS, len(found), sum(found.values()) - len(found))
        results = [run(job.wait_result(timeout=30)) for job in sent]
        equal([result.return_value for result in results], list(range(JOBS)))

    async def result():
        return (await (await add.kiq(1, 2)).wait_result(timeout=30)).return_value

    case("jobs", many)
    case("result", lambda: equal(run(result()), 3))
