"""pyrate-limiter: a leaky bucket in a sorted set, by scripts; fastapi-limiter is made of it."""
# needs: pyrate-limiter==3.9.0 redis==5.3.1

import redis
from pyrate_limiter import BucketFullException, Duration, Limiter, Rate, RedisBucket
from cases import PORT, case, equal, kill


def bucket():
    rates = [Rate(50, Duration.HOUR), Rate(100, Duration.DAY)]
    limiter = Limiter(RedisBucket.init(rates, redis.Redis(port=PORT), "bucket"))
    taken = 0
    for n in range(80):
        if n == 20:
            kill()
        try:
            taken += limiter.try_acquire("me")
        except BucketFullException:
            pass
    equal(taken, 50)


case("bucket", bucket)
