#!/usr/bin/env python3
"""Brings data from redis-server to Doyen by a file, as a replica under load, and by SCAN; takes it
back by `doyen export`, and to another cluster by lines of JSON; and compares all of it with `--verify`, and with redis-server again.

    tests/scripts/migrate.py target/debug/doyen

It needs redis-server 7.
"""

import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time

DOYEN = sys.argv[1]
KEYS = int(os.environ.get("KEYS", "20000"))


def free_port():
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        return it.getsockname()[1]


class Client:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.file = self.socket.makefile("rb")

    def send(self, *words):
        words = [w if isinstance(w, bytes) else str(w).encode() for w in words]
        out = b"*%d\r\n" % len(words)
        for word in words:
            out += b"$%d\r\n%s\r\n" % (len(word), word)
        self.socket.sendall(out)

    def reply(self):
        line = self.file.readline()
        kind, rest = line[:1], line[1:-2]
        if kind == b":":
            return int(rest)
        if kind == b"$":
            size = int(rest)
            return None if size < 0 else self.file.read(size + 2)[:-2]
        if kind == b"*":
            return [self.reply() for _ in range(int(rest))]
        return line[:-2]

    def ask(self, *words):
        self.send(*words)
        return self.reply()


def wait_for(port):
    end = time.time() + 60
    while True:
        try:
            if Client(port).ask("SET", "probe", "1") == b"+OK":
                Client(port).ask("DEL", "probe")
                return
        except OSError:
            pass
        if time.time() > end:
            sys.exit(f"port {port} does not answer")
        time.sleep(0.1)


def redis(directory, *more):
    port = free_port()
    process = subprocess.Popen(
        ["redis-server", "--port", str(port), "--save", "", "--dir", directory,
         "--repl-diskless-sync-delay", "0", *more],
        stdout=subprocess.DEVNULL)
    wait_for(port)
    return process, port


def node():
    process = subprocess.Popen(
        [DOYEN, "run", "--log", "error", "--listen", ":0", "--data", ":0",
         "--resp", ":0", "--resp-cluster", ":0",
         "--http", "off"],
        stdout=subprocess.PIPE, text=True)
    ready = dict(pair.split("=", 1) for pair in process.stdout.readline().split()[1:])
    resp = int(ready["resp"].rsplit(":", 1)[1])
    wait_for(resp)
    return process, resp


def doyen(*words, good=True):
    done = subprocess.run([DOYEN, *words], capture_output=True, text=True)
    print(f"$ doyen {' '.join(words)}\n{done.stdout}{done.stderr}", end="")
    if good and done.returncode != 0:
        sys.exit(f"it ended with status {done.returncode}")
    return done


def fill(client, count):
    """Keys of each type that both have, in two databases."""
    rng = random.Random(7)
    far = 4_000_000_000_000
    for database in (0, 3):
        client.ask("SELECT", database)
        for n in range(count):
            key = f"{database}:{n}"
            kind = rng.randrange(5)
            if kind == 0:
                client.send("SET", key, rng.randbytes(rng.randrange(200)))
            elif kind == 1:
                client.send("SET", key, rng.randrange(1 << 40), "PXAT", far + n)
            elif kind == 2:
                fields = [w for f in range(rng.randrange(1, 30)) for w in (f"f{f}", rng.random())]
                client.send("HSET", key, *fields)
            elif kind == 3:
                client.send("SADD", key, *[rng.randrange(1000) for _ in range(20)])
            else:
                stream(client, key, rng.randrange(1, 30))
                continue
            client.reply()
        stream(client, "long", 10_000)
        client.ask("HSET", "large", *[w for f in range(30_000) for w in (f"f{f}", "x" * 40)])
        client.ask("SADD", "members", *[f"member-{m}" for m in range(50_000)])
        client.ask("PEXPIREAT", "large", far)
    client.ask("SELECT", 0)


def stream(client, key, count):
    """A stream with groups, and pending entries of a consumer. Some entries are deleted."""
    for n in range(1, count + 1):
        client.ask("XADD", key, f"{n}-{n}", "name", f"value {n}", f"field {n % 3}", "x" * 20)
    client.ask("XGROUP", "CREATE", key, "idle", "$")
    client.ask("XGROUP", "CREATE", key, "group", "0")
    client.ask("XREADGROUP", "GROUP", "group", "me", "COUNT", count // 2, "STREAMS", key, ">")
    client.ask("XACK", key, "group", "1-1")
    client.ask("XDEL", key, f"{count}-{count}")


def load(port, until):
    """Writes that do not come to the same if one is lost, or executed twice."""
    client, n = Client(port), 0
    client.ask("XGROUP", "CREATE", "events", "workers", "0", "MKSTREAM")
    while not until.is_set():
        n += 1
        client.ask("INCR", f"count:{n % 50}")
        client.ask("HINCRBY", "counts", f"f{n % 50}", 1)
        client.ask("XADD", "events", "*", "n", n)
        client.ask("XREADGROUP", "GROUP", "workers", f"w{n % 3}", "STREAMS", "events", ">")
        if n % 3 == 0:
            client.ask("SPOP", "members")
        if n % 50 == 0:
            for words in (["MULTI"], ["SET", "{t}a", n], ["SET", "{t}b", n], ["EXEC"]):
                client.ask(*words)
            client.ask("SET", f"new:{n}", n, "EX", 1000)
            client.ask("DEL", f"new:{n - 100}")


def main():
    with tempfile.TemporaryDirectory() as directory:
        source, redis_port = redis(directory)
        running = [source]
        try:
            client = Client(redis_port)
            fill(client, KEYS // 2)
            url = f"redis://127.0.0.1:{redis_port}"

            print("== by a file")
            client.ask("SAVE")
            process, resp = node()
            running.append(process)
            to = f"127.0.0.1:{resp}"
            file = os.path.join(directory, "dump.rdb")
            doyen("import", file, "--to", to, "--verify")
            damaged = os.path.join(directory, "damaged.rdb")
            with open(file, "rb") as whole, open(damaged, "wb") as cut:
                cut.write(whole.read()[:-1000])
            refused = doyen("import", damaged, "--to", to, good=False)
            assert refused.returncode == 1 and "--from-key" in refused.stderr, refused

            print("== back by an export")
            back = os.path.join(directory, "back.rdb")
            doyen("export", back, "--from", to)
            other, other_port = redis(directory, "--dbfilename", "back.rdb")
            running.append(other)
            assert Client(other_port).ask("DBSIZE") == client.ask("DBSIZE")
            doyen("import", f"redis://127.0.0.1:{other_port}", "--to", to, "--scan", "--verify")

            print("== to another cluster by lines of JSON")
            lines = os.path.join(directory, "all.ndjson")
            doyen("export", lines, "--from", to)
            process, resp = node()
            running.append(process)
            doyen("import", lines, "--to", f"127.0.0.1:{resp}", "--verify")
            assert Client(resp).ask("DBSIZE") == client.ask("DBSIZE")

            print("== as a replica, under load")
            process, resp = node()
            running.append(process)
            to = f"127.0.0.1:{resp}"
            stop = threading.Event()
            writer = threading.Thread(target=load, args=(redis_port, stop))
            writer.start()
            follower = subprocess.Popen(
                [DOYEN, "import", url, "--to", to], stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True)
            while "all keys are written" not in (line := follower.stderr.readline()):
                assert line, "it ended before its time"
            time.sleep(2)
            stop.set()
            writer.join()
            target, end = Client(resp), time.time() + 60
            client.ask("SET", "last", "here")
            while target.ask("GET", "last") != b"here" and time.time() < end:
                time.sleep(0.1)
            follower.send_signal(2)
            said, _ = follower.communicate(timeout=60)
            print(said, end="")
            assert follower.returncode == 0, follower.returncode
            for words in ([["GET", f"count:{n}"] for n in range(50)]
                          + [["HGET", "counts", f"f{n}"] for n in range(50)]
                          + [["XRANGE", "events", "-", "+"], ["XPENDING", "events", "workers"]]
                          + [["SCARD", "members"], ["DBSIZE"], ["MGET", "{t}a", "{t}b"]]):
                here, there = target.ask(*words), client.ask(*words)
                assert here == there, (words, here, there)
            done = doyen("import", url, "--to", to, "--until-caught-up", "--verify")
            assert "all are the same" in done.stdout

            print("== streams have no form in the files of Redis 5")
            old = os.path.join(directory, "old.rdb")
            refused = doyen("export", old, "--from", to, "--rdb-version", "9", good=False)
            assert refused.returncode == 1 and "--rdb-version 10" in refused.stderr, refused
        finally:
            for process in running:
                process.kill()
                process.wait()
    print("== all is the same")


main()
