"""limits with each of its strategies, and slowapi on top of it."""
# needs: limits==5.8.0 slowapi==0.1.10 redis==5.3.1 httpx==0.28.1 starlette==0.46.2

from limits import parse
from limits.storage import storage_from_string
from limits.strategies import (FixedWindowRateLimiter, MovingWindowRateLimiter,
                               SlidingWindowCounterRateLimiter)
from cases import URL, case, equal, kill

storage = storage_from_string(URL)


def limited(strategy, name, with_kill=False):
    limiter = strategy(storage)
    limit = parse("100/hour")
    taken = []
    for n in range(150):
        if with_kill and n == 50:
            kill()
        taken.append(limiter.hit(limit, name))
    equal(taken, [True] * 100 + [False] * 50)
    equal(limiter.get_window_stats(limit, name).remaining, 0)
    equal(limiter.test(limit, name), False)
    limiter.clear(limit, name)
    equal(limiter.test(limit, name), True)


def slow():
    from slowapi import Limiter, _rate_limit_exceeded_handler
    from slowapi.errors import RateLimitExceeded
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route
    from starlette.testclient import TestClient

    limiter = Limiter(key_func=lambda: "me", storage_uri=URL, strategy="moving-window",
                      headers_enabled=True)

    @limiter.limit("5/hour")
    def home(request):
        return PlainTextResponse("here")

    app = Starlette(routes=[Route("/", home)])
    app.state.limiter = limiter
    app.add_exception_handler(RateLimitExceeded, _rate_limit_exceeded_handler)
    client = TestClient(app)
    equal([client.get("/").status_code for _ in range(7)], [200] * 5 + [429] * 2)


case("fixed", limited, FixedWindowRateLimiter, "fixed")
case("moving", limited, MovingWindowRateLimiter, "moving", True)
case("sliding", limited, SlidingWindowCounterRateLimiter, "sliding")
case("slowapi", slow)
case("reset", lambda: equal(isinstance(storage.reset(), int), True))
