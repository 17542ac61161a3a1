"""dramatiq: two worker processes, results, retries, delays, groups, rate limiters."""
# needs: dramatiq[redis]==2.2.1 redis==5.3.1

import os

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.rate_limits import ConcurrentRateLimiter, WindowRateLimiter
from dramatiq.rate_limits.backends import RedisBackend as Limits
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend
from cases import DIR, PORT, TAGGED, case, equal, jobs, mark, workers

# Its script makes up keys from this name.
name = {"namespace": "{dramatiq}"} if TAGGED else {}
broker = RedisBroker(host="127.0.0.1", port=PORT, **name)
broker.add_middleware(Results(backend=RedisBackend(host="127.0.0.1", port=PORT)))
dramatiq.set_broker(broker)


@dramatiq.actor
def leave(n):
    mark(n)


@dramatiq.actor(store_results=True)
def add(a, b):
    return a + b


@dramatiq.actor(store_results=True, max_retries=3, min_backoff=100, max_backoff=200)
def fail_once():
    try:
        os.mkdir(os.path.join(DIR, "failed"))
    except FileExistsError:
        return "again"
    raise ValueError("on purpose")


def result(message):
    return message.get_result(block=True, timeout=30_000)


def grouped():
    group = dramatiq.group([add.message(n, n) for n in range(10)]).run()
    equal(list(group.get_results(block=True, timeout=30_000)), [2 * n for n in range(10)])


def limiters():
    limits = Limits(host="127.0.0.1", port=PORT)
    with ConcurrentRateLimiter(limits, "concurrent", limit=1).acquire():
        pass
    window = WindowRateLimiter(limits, "{window}" if TAGGED else "window", limit=2, window=60)
    taken = []
    for _ in range(3):
        with window.acquire(raise_on_failure=False) as acquired:
            taken.append(acquired)
    equal(taken, [True, True, False])


def main():
    workers("dramatiq", "dramatiq_jobs", "-p", "1", "-t", "2")
    case("jobs", jobs, leave.send)
    case("result", lambda: equal(result(add.send(1, 2)), 3))
    case("delay", lambda: equal(result(add.send_with_options(args=(1, 2), delay=1000)), 3))
    case("retry", lambda: equal(result(fail_once.send()), "again"))
    case("group", grouped)
    case("pipeline", lambda: equal(
        dramatiq.pipeline([add.message(1, 2), add.message(3)]).run().get_result(
            block=True, timeout=30_000), 6))
    case("limiters", limiters)
    case("flush", broker.flush_all)


if __name__ == "__main__":
    main()
