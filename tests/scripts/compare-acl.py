#!/usr/bin/env python3
"""Compares access lists of redis-server and Doyen: categories of commands, and the verdicts of
ACL DRYRUN over random users and commands.

    compare-acl.py DOYEN-BINARY [--users N] [--seed N]

Starts both on free ports (redis-server 7.x must be installed). Only commands that both have are
compared. Ends with status 1 if an answer differs and KNOWN below does not list it.
"""

import importlib.util
import pathlib
import random
import re
import subprocess
import sys
import tempfile

BESIDE = pathlib.Path(__file__).with_name("compare-redis.py")
spec = importlib.util.spec_from_file_location("compare_redis", BESIDE)
other = importlib.util.module_from_spec(spec)
spec.loader.exec_module(other)

# Categories that differ on purpose: a command, the category, and the reason.
KNOWN = {
    ("cluster", "slow"): "it has no subcommands of its own here",
}
# Categories of redis-server 7.0 that Redis 8 changed.
CHANGED = {}

KEYS = ["a", "ab", "abc", "b", "b:1", "c:x:1", "", "*", "[x]"]
PATTERNS = ["*", "a*", "ab", "b:*", "?", "c:*:1", "[ab]", "abc*", "\\*", "*b*", "a?c", "[^a]*"]
CHANNELS = ["news", "news.a", "n", "other", "*"]
CHANNEL_PATTERNS = ["*", "news", "news*", "n?ws", "other", "news.[ab]"]
COMMANDS = [
    "get {k}", "set {k} 1", "set {k} 1 get", "set {k} 1 ex 10", "mget {k} {k}", "mset {k} 1 {k} 2",
    "del {k} {k}", "exists {k} {k}", "incr {k}", "append {k} x", "strlen {k}", "getrange {k} 0 1",
    "setrange {k} 0 x", "getdel {k}", "getex {k}", "getset {k} x", "expire {k} 10", "ttl {k}",
    "persist {k}", "type {k}", "touch {k}", "rename {k} {k}", "renamenx {k} {k}", "copy {k} {k}",
    "hset {k} f v", "hget {k} f", "hgetall {k}", "hdel {k} f", "hincrby {k} f 1", "hlen {k}",
    "hexists {k} f", "hrandfield {k}", "hscan {k} 0", "setbit {k} 0 1", "getbit {k} 0",
    "bitfield {k} get u8 0", "bitfield {k} set u8 0 1", "bitfield_ro {k} get u8 0", "bitcount {k}",
    "object encoding {k}", "object freq {k}", "memory usage {k}", "eval x 1 {k}", "eval x 0",
    "eval_ro x 2 {k} {k}", "evalsha x 1 {k}", "watch {k} {k}", "multi", "exec", "discard", "unwatch",
    "publish {c} x", "spublish {c} x", "subscribe {c} {c}", "psubscribe {c}", "ssubscribe {c}",
    "unsubscribe {c}", "punsubscribe {c}", "pubsub channels", "ping", "echo x", "select 0",
    "select 1", "auth x", "hello", "quit", "reset", "client list", "client id", "client kill x",
    "client setname x", "config get x", "config set a b", "acl list", "acl whoami", "acl cat",
    "command count", "command docs", "dbsize", "flushall", "flushdb", "keys *", "scan 0",
    "randomkey", "info", "time", "wait 0 0", "script load x", "script exists x", "slowlog get",
    "role", "lastsave", "lolwut", "object help", "function list", "latency latest", "readonly",
]


def text(reply):
    """The text of a status, an error or a string."""
    if reply[:1] == b"$":
        return reply.split(b"\r\n", 1)[1][:-2].decode("utf-8", "replace")
    return reply[1:-2].decode("utf-8", "replace")


def listed(reply):
    """The strings of an array of strings."""
    lines = reply.split(b"\r\n")
    return {line.decode() for line in lines[2::2] if line}


def categories(redis, doyen):
    names = listed(redis.ask(["ACL", "CAT"]))
    if names != listed(doyen.ask(["ACL", "CAT"])):
        print("the categories themselves differ")
        return 1
    theirs = {name: listed(redis.ask(["ACL", "CAT", name])) for name in names}
    ours = {name: listed(doyen.ask(["ACL", "CAT", name])) for name in names}
    both = set().union(*theirs.values()) & set().union(*ours.values())
    differs = 0
    for name in sorted(names):
        for command in sorted((theirs[name] ^ ours[name]) & both):
            if (command, name) in KNOWN or (command, name) in CHANGED:
                continue
            differs += 1
            where = "only at Doyen" if command in ours[name] else "only at Redis"
            print(f"{command}: category @{name} {where}")
    print(f"{len(both)} commands in {len(names)} categories: {differs} differ")
    return differs


def rule(rng, names, commands):
    """A rule, right or wrong, that both servers know."""
    sign = rng.choice("+-")
    return rng.choice([
        "on", "off", "nopass", "resetpass", ">pw", "<pw", "allkeys", "resetkeys", "allchannels",
        "resetchannels", "allcommands", "nocommands", "clearselectors", "nonsense", "#00", "+nosuch",
        f"~{rng.choice(PATTERNS)}", f"~{rng.choice(PATTERNS)}", f"%R~{rng.choice(PATTERNS)}",
        f"%W~{rng.choice(PATTERNS)}", f"%RW~{rng.choice(PATTERNS)}", f"%X~{rng.choice(PATTERNS)}",
        f"&{rng.choice(CHANNEL_PATTERNS)}", f"&{rng.choice(CHANNEL_PATTERNS)}",
        f"{sign}@{rng.choice(names)}", f"{sign}@{rng.choice(names)}", f"{sign}@all",
        f"{sign}{rng.choice(commands)}", f"{sign}{rng.choice(commands)}",
        f"{sign}{rng.choice(commands)}", "+select|0", "+select|1", "-config|get", "+config|get",
    ])


def rules(rng, names, commands):
    words = [rule(rng, names, commands) for _ in range(rng.randint(1, 7))]
    for _ in range(rng.choice([0, 0, 0, 1, 2])):
        inner = [rule(rng, names, commands) for _ in range(rng.randint(1, 4))]
        words.append("(" + " ".join(inner) + ")")
    # Mistakes would be all that is seen otherwise.
    if rng.random() < 0.7:
        wrong = ("nonsense", "#00", "<pw", "+nosuch", "%X~")
        words = [w for w in words if not any(bad in w for bad in wrong)]
    return words


def verdicts(redis, doyen, rng, users):
    names = sorted(listed(redis.ask(["ACL", "CAT"])))
    all_of = lambda at: set().union(*(listed(at.ask(["ACL", "CAT", name])) for name in names))
    commands = sorted(all_of(redis) & all_of(doyen))
    asked = differs = refused = 0
    for _ in range(users):
        words = rules(rng, names, commands)
        set_user = ["ACL", "SETUSER", "u", "reset"] + words
        a, b = text(redis.ask(set_user)), text(doyen.ask(set_user))
        if a != b:
            differs += 1
            print(f"{' '.join(set_user)}\n    redis {a}\n    doyen {b}")
        if a != "OK":
            refused += 1
            continue
        for _ in range(40):
            line = rng.choice(COMMANDS)
            while "{k}" in line:
                line = line.replace("{k}", rng.choice(KEYS) or "''", 1)
            while "{c}" in line:
                line = line.replace("{c}", rng.choice(CHANNELS), 1)
            args = ["ACL", "DRYRUN", "u"] + other.words(line)
            # Redis 8 names the user.
            plain = lambda reply: re.sub(r"^(This user|User \S+) ", "User ", text(reply))
            a, b = plain(redis.ask(args)), plain(doyen.ask(args))
            asked += 1
            if a != b:
                differs += 1
                print(f"{' '.join(words)}: {line}\n    redis {a}\n    doyen {b}")
    print(f"{users} users ({refused} refused), {asked} verdicts: {differs} differ")
    return differs


def main():
    binary, flags = sys.argv[1], dict(zip(sys.argv[2::2], sys.argv[3::2]))
    seed, users = int(flags.get("--seed", random.randrange(1 << 32))), int(flags.get("--users", 300))
    print(f"seed: {seed}")
    with tempfile.TemporaryDirectory() as place:
        port = other.free()
        started = [
            subprocess.Popen(["redis-server", "--port", str(port), "--save", "", "--dir", place,
                "--logfile", "redis.log", "--bind", "127.0.0.1"]),
            subprocess.Popen([binary, "run", "--log", "error", "--listen", ":0", "--data", ":0",
                "--resp", ":0", "--resp-cluster", "off", "--http", "off"], stdout=subprocess.PIPE,
                text=True),
        ]
        try:
            ready = dict(pair.split("=", 1) for pair in started[1].stdout.readline().split()[1:])
            here = int(ready["resp"].rsplit(":", 1)[1])
            other.until(lambda: other.Client(port, 2))
            other.until(lambda: other.Client(here, 2).ask(["GET", "k"]).startswith(b"$"))
            redis, doyen = other.Client(port, 2), other.Client(here, 2)
            differs = categories(redis, doyen)
            differs += verdicts(redis, doyen, random.Random(seed), users)
        finally:
            for process in started:
                process.terminate()
            for process in started:
                process.wait()
    return 1 if differs else 0


if __name__ == "__main__":
    sys.exit(main())
