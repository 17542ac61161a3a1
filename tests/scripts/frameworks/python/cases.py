"""What the Python programs share: their words for the runner, and jobs that leave a mark."""

import collections
import os
import subprocess
import sys
import time
import traceback

PORT = int(os.environ["REDIS_PORT"])
DIR = os.environ["DIR"]
URL = f"redis://127.0.0.1:{PORT}/0"
TAGGED = os.environ.get("TAGGED", "") != ""
MARKS = os.path.join(DIR, "marks")
JOBS = int(os.environ.get("JOBS", "300"))
# How long jobs may take altogether, with a failover between them.
LONGEST_S = 40


def say(*words):
    print(*words, flush=True)


def kill():
    say("kill")


def case(name, body, *words):
    """Says whether `body` returns without an exception."""
    try:
        result = body(*words)
        say("case", name, "ok")
        return result
    except Exception as error:
        traceback.print_exc()
        say("case", name, "failed", " ".join(f"{type(error).__name__}: {error}".split())[:300])
        return None


def mark(n):
    """A job was executed. Lines of this size are written in one piece."""
    time.sleep(0.01)
    with open(MARKS, "a") as file:
        file.write(f"{n}\n")


def marks():
    try:
        with open(MARKS) as file:
            return collections.Counter(file.read().split())
    except FileNotFoundError:
        return collections.Counter()


def await_true(what, true, limit_s=LONGEST_S):
    end = time.monotonic() + limit_s
    while not true():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {limit_s} s")
        time.sleep(0.05)


def equal(found, expected):
    if found != expected:
        raise AssertionError(f"found {found!r} instead of {expected!r}")


def jobs(send, count=JOBS):
    """Sends jobs; the node is killed when a quarter of them is executed, while more are sent."""
    for n in range(count // 2):
        send(n)
    await_true("a quarter of the jobs", lambda: len(marks()) >= count // 4)
    kill()
    for n in range(count // 2, count):
        send(n)
    try:
        await_true("all jobs", lambda: len(marks()) == count)
    finally:
        found = marks()
        say("jobs", count, len(found), sum(found.values()) - len(found))


def workers(*words, count=2, **more):
    """Starts the worker processes of a queue. The runner ends them with the program."""
    environment = {**os.environ, **more}
    return [subprocess.Popen([os.path.join(os.path.dirname(sys.executable), words[0]), *words[1:]],
                             stdout=sys.stderr, env=environment) for _ in range(count)]
