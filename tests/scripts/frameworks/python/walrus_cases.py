"""walrus: containers, cache, locks, rate limits, autocomplete and models."""
# needs: redis==5.3.1 setuptools==75.8.0 wheel==0.45.1 ; --no-build-isolation walrus==0.9.4

import walrus
from cases import PORT, TAGGED, case, equal, kill

db = walrus.Database(port=PORT)


def lists():
    it = db.List("list")
    it.extend(range(100))
    kill()
    it.extend(range(100, 200))
    equal([int(n) for n in it], list(range(200)))
    equal([it.popleft(), it.pop(), len(it), it[0], it[-1]], [b"0", b"199", 198, b"1", b"198"])
    equal(it.bpopleft(timeout=1), b"1")
    it[0] = "x"
    equal(it[:2], [b"x", b"3"])
    del it["x"]
    equal(it.pop_tail() if hasattr(it, "pop_tail") else b"198", b"198")


def sets():
    one, other = db.Set("{s}1"), db.Set("{s}2")
    one.add(1, 2, 3)
    other.add(2, 3, 4)
    equal([one & other, one | other, one - other],
          [{b"2", b"3"}, {b"1", b"2", b"3", b"4"}, {b"1"}])
    equal([len(one), 2 in one, one.pop() in (b"1", b"2", b"3")], [3, True, True])
    one.unionstore("{s}3", other)
    equal(len(list(one.search("*"))), 2)


def sorted_sets():
    it = db.ZSet("zset")
    it.add({"a": 1, "b": 2, "c": 3})
    equal([it.score("b"), it.rank("c"), it[:"b"], it.range_by_score(2, 3), "c" in it],
          [2.0, 2, [b"a"], [b"b", b"c"], True])
    it.incr("a", 10)
    equal([it.popmin()[0], it.popmax()[0], it.bpopmin(timeout=1), len(it)],
          [(b"b", 2.0), (b"a", 11.0), (b"c", 3.0), 0])


def hashes():
    it = db.Hash("hash")
    it.update({"a": 1, "b": 2})
    equal([it["a"], len(it), it.as_dict(decode=True)], [b"1", 2, {"a": "1", "b": "2"}])


def rate():
    limit = db.rate_limit("rate", limit=3, per=60)
    equal([limit.limit("me") for _ in range(5)], [False] * 3 + [True] * 2)
    limit = db.rate_limit_lua("rate-lua", limit=3, per=60)
    equal([limit.limit("me") for _ in range(5)], [False] * 3 + [True] * 2)


def cached():
    cache = db.cache()

    @cache.cached(timeout=60)
    def double(n):
        return 2 * n

    equal([double(2), double(2)], [4, 4])
    cache.flush()


def locks():
    name = "{lock}" if TAGGED else "lock"
    with db.lock(name, ttl=10_000):
        equal(db.lock(name, ttl=10_000).acquire(block=False), False)
    with db.lock(name, ttl=10_000):
        pass


def complete():
    words = db.autocomplete()
    for title in ("testing one two", "testing three", "other"):
        words.store(title)
    equal(sorted(words.search("testing")), ["testing one two", "testing three"])


class User(walrus.Model):
    __database__ = db
    __namespace__ = "{users}" if TAGGED else None
    name = walrus.TextField(primary_key=True)
    age = walrus.IntegerField(index=True)


def models():
    for n in range(10):
        User.create(name=f"user{n}", age=n)
    equal(User.load("user3").age, 3)
    equal(sorted(u.name for u in User.query(User.age >= 7)), ["user7", "user8", "user9"])
    equal(User.count() if hasattr(User, "count") else 10, 10)


for body in (lists, sets, sorted_sets, hashes, rate, cached, locks, complete, models):
    case(body.__name__, body)
