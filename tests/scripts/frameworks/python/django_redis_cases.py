"""django-redis: the cache, and what it offers beyond Django's own."""
# needs: django==5.2.19 django-redis==6.0.0 redis==5.3.1

import django
from django.conf import settings
from cases import URL, case, equal, kill

settings.configure(
    CACHES={"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": URL,
                        "OPTIONS": {"CLIENT_CLASS": "django_redis.client.DefaultClient"}}},
    SESSION_ENGINE="django.contrib.sessions.backends.cache", USE_TZ=True)
django.setup()

from django.contrib.sessions.backends.cache import SessionStore  # noqa: E402
from django.core.cache import cache  # noqa: E402


def plain():
    cache.set("a", {"b": 1}, timeout=100)
    equal(cache.get("a"), {"b": 1})
    equal(cache.add("a", 2), False)
    cache.set_many({f"many:{n}": n for n in range(100)})
    kill()
    equal(cache.get_many([f"many:{n}" for n in range(100)]), {f"many:{n}": n for n in range(100)})
    cache.set("n", 1)
    equal([cache.incr("n"), cache.decr("n"), cache.has_key("n")], [2, 1, True])
    equal(cache.delete("a"), True)


def beyond():
    cache.set("t", 1, timeout=100)
    assert 90 < cache.ttl("t") <= 100
    equal([cache.expire("t", timeout=50), cache.persist("t"), cache.ttl("t")], [True, True, None])
    equal(sorted(cache.keys("many:*"))[:2], ["many:0", "many:1"])
    equal(len(list(cache.iter_keys("many:*"))), 100)
    equal(cache.delete_pattern("many:*"), 100)


def sets():
    equal(cache.sadd("{s}", "a", "b", "c"), 3)
    equal([cache.scard("{s}"), cache.sismember("{s}", "a"), cache.smembers("{s}")],
          [3, True, {"a", "b", "c"}])
    cache.sadd("{s}o", "b", "c", "d")
    equal(cache.sinter("{s}", "{s}o"), {"b", "c"})
    equal(cache.sunion("{s}", "{s}o"), {"a", "b", "c", "d"})
    equal(cache.sdiff("{s}", "{s}o"), {"a"})
    equal(len(list(cache.sscan_iter("{s}"))), 3)
    equal(cache.srem("{s}", "a"), 1)
    equal(cache.spop("{s}") in ("b", "c"), True)


def stored():
    equal(cache.sinterstore("dest", "{s}o", "{s}o"), 3)
    cache.sadd("o", "b")
    equal(cache.smove("o", "dest2", "b"), True)


def hashes():
    cache.hset("h", "f", 1)
    equal([cache.hlen("h"), cache.hexists("h", "f"), cache.hkeys("h")], [1, True, ["f"]])
    equal(cache.hdel("h", "f"), 1)


def locks():
    with cache.lock("a lock", timeout=10):
        equal(cache.lock("a lock", timeout=10).acquire(blocking=False), False)


def session():
    one = SessionStore()
    one["user"] = 7
    one.save()
    one.cycle_key()
    equal(SessionStore(one.session_key)["user"], 7)


case("plain", plain)
case("beyond", beyond)
case("sets", sets)
case("sets-of-several-slots", stored)
case("hashes", hashes)
case("locks", locks)
case("session", session)
case("clear", cache.clear)
