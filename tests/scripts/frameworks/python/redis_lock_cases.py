"""python-redis-lock: locks that wait by BLPOP, and are given back by scripts."""
# needs: python-redis-lock==4.0.0 redis==5.3.1

import threading

import redis
import redis_lock
from cases import PORT, TAGGED, case, equal, kill


def name(name):
    """A lock has two keys."""
    return "{" + name + "}" if TAGGED else name


def connection():
    return redis.Redis(port=PORT)


def contended():
    """Eight threads add to a number that nothing but the lock protects."""
    number = [0]

    def add():
        own = connection()
        for _ in range(25):
            with redis_lock.Lock(own, name("contended"), expire=30):
                read = number[0]
                own.ping()
                number[0] = read + 1

    threads = [threading.Thread(target=add) for _ in range(8)]
    for thread in threads:
        thread.start()
    kill()
    for thread in threads:
        thread.join()
    equal(number[0], 200)


def once():
    lock = redis_lock.Lock(connection(), name("once"), expire=10, id="me")
    equal(lock.acquire(blocking=False), True)
    other = redis_lock.Lock(connection(), name("once"), expire=10)
    equal(other.acquire(blocking=False), False)
    equal(other.acquire(timeout=1), False)
    equal(lock.get_owner_id(), "me")
    lock.extend(20)
    lock.release()
    equal(other.acquire(timeout=10), True)
    other.release()


def renewed():
    with redis_lock.Lock(connection(), name("renewed"), expire=2, auto_renewal=True) as lock:
        threading.Event().wait(3)
        equal(lock.locked(), True)


def reset():
    redis_lock.Lock(connection(), name("left"), expire=100).acquire()
    redis_lock.Lock(connection(), name("left")).reset()
    equal(redis_lock.Lock(connection(), name("left")).acquire(blocking=False), True)
    redis_lock.reset_all(connection())
    equal(redis_lock.Lock(connection(), name("left")).acquire(blocking=False), True)


case("once", once)
case("contended", contended)
case("renewed", renewed)
case("reset", reset)
