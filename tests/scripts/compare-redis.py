#!/usr/bin/env python3
"""Sends the same commands to redis-server and to Doyen's RESP ports, and compares the raw replies.

    compare-redis.py DOYEN-BINARY [--verbose] [--seed N]

Starts both on free ports (redis-server 7.x must be installed). Every command is sent in RESP2 and
in RESP3. After the single commands come random transactions of two clients, whose seed is printed.
Ends with status 1 if a reply differs and KNOWN below does not list it.
"""

import collections
import hashlib
import random
import re
import socket
import subprocess
import sys
import tempfile
import time

# Replies that differ on purpose: a pattern of the command, and the reason.
KNOWN = [
    (r"(?i)^info\b", "the reply is about this server"),
    (r"(?i)^command( docs| info| list| count)?( (?!nosuch|x)\S+)*$", "Doyen has fewer commands"),
    (r"(?i)^config get (maxmemory-policy|appendonly save)$", "settings have another order"),
    (r"^CONFIG GET SAVE$", "the reply has the setting's own spelling"),
    (r"^SELECT 1$", "there is one database"),
    (r"(?i)^incrbyfloat \S+ (0x10|1e400)$", "numbers are decimal, and doubles"),
    (r"(?i)^incrbyfloat (big \S+|\S+ -?922337203685477580\d)$",
        "increments are doubles, sums exact to 17 places"),
    (r"(?i)^getex nosuch \S+ \S+$", "the number is checked before the key"),
    (r"^SCAN 18446744073709551615 COUNT 5$|^SCAN -1$", "cursors are different"),
    (r"(?i)^client (setinfo|no-touch)\b", "Redis has it since 7.2; clients send it without asking"),
    (r"^HELLO 2 AUTH nosuch x FOO$", "a syntax error comes before a wrong password"),
    (r"^CLIENT ID$|^WAIT 0 10$", "the reply is about this server"),
    (r"^CLUSTER (INFO|SLOTS|NODES|SHARDS|MYID)$", "the reply is about this cluster"),
    (r"^(TIME|LASTSAVE|LOLWUT( \S+)*)$", "the reply is about this server"),
    (r"^ACL (LIST|GETUSER default)$", "Redis shows sanitize-payload since 7.2"),
    (r"^ACL LOG$", "entries have numbers and times, as in Redis 7.2"),
    (r"^FUNCTION STATS$", "there is no script engine"),
    (r"^CLIENT KILL MAXAGE\b", "Redis has it since 7.4"),
    (r"^CONFIG SET (slowlog-max-len -1|maxclients 0)$", "limits are different"),
    (r"^CONFIG GET (databases|maxclients)$", "the reply is about this server"),
    (r"^OBJECT IDLETIME (?!nosuch)", "the time of the last use is not kept"),
    (r"^OBJECT REFCOUNT n$", "no two keys share a value"),
    (r"^MEMORY USAGE (?!nosuch|s FOO)\w+( SAMPLES 0)?$", "entries have another layout"),
    (r"^MEMORY DOCTOR|^MEMORY STATS", "the reply is about this server"),
]
# On the plain port only. Redis refuses these without cluster mode.
KNOWN_PLAIN = [(r"(?i)^(readonly|readwrite|asking)$|^CLUSTER (KEYSLOT|COUNTKEYSINSLOT)\b",
    "both ports answer about the cluster")]
# On the cluster-aware port only.
KNOWN_CLUSTER = [(r"(?i)^mset\b",
    "the number of arguments is checked before the slots of the keys")]

SETUP = ["FLUSHALL", "SET s hello", "SET n 10", "SET f 1.5", "SET ttl v EX 1000", "SET empty ''",
    "SET big 9223372036854775807"]

# Scripts whose replies do not depend on the moment. They have no single quotes.
SCRIPTS = [
    "return 1", "return {1, 2.7, {ARGV[1], false}, true}", "return {ok = [[fine]]}",
    "return {err = [[ERR wrong]]}", "return redis.error_reply([[wrong]])", "return nil",
    "return KEYS[1]", "return #KEYS + #ARGV", "retrun 1", "return nosuch", "error([[stop]])",
    "return redis.call([[GET]], KEYS[1])", "return redis.call([[INCRBY]], KEYS[1], ARGV[1])",
    "return redis.pcall([[INCRBY]], KEYS[1], ARGV[1])", "return redis.call([[NOSUCH]])",
    "return redis.call([[GET]])", "return redis.call()", "return redis.call([[MULTI]])",
    "redis.call([[SET]], KEYS[1], ARGV[1]) return redis.call([[INCR]], KEYS[1])",
    "redis.call([[SET]], KEYS[1], 7) error([[after a write]])",
    "redis.setresp(3) return redis.call([[GET]], KEYS[1])", "return redis.call([[TTL]], KEYS[1])",
    "return redis.sha1hex([[]])", "return cjson.encode({1, ARGV[1]})", "return _VERSION",
    "return redis.call([[MGET]], KEYS[1], KEYS[1])", "return tonumber(ARGV[1]) / 2", "x = 1",
    "if redis.call([[GET]], KEYS[1]) == ARGV[1] then return redis.call([[DEL]], KEYS[1]) end",
    "#!lua flags=no-writes\nreturn redis.call([[SET]], KEYS[1], 1)", "#!lua\nreturn 5", "#!js\n1",
]

NUMBERS = ["0", "1", "-1", "100", "x", "''", "1.5", "9223372036854775807", "-9223372036854775808",
    "9223372036854775808", "' 1'", "01", "+1", "1e3"]


def commands():
    """Several hundred commands, right and wrong. SETUP asks for the keys to be set up again."""
    out = []

    def add(*lines):
        out.extend(lines)

    # Every command with no to five arguments.
    names = """
        PING ECHO HELLO AUTH SELECT CLIENT COMMAND DBSIZE SET GET GETSET GETDEL GETEX SETNX SETEX
        PSETEX MGET MSET APPEND STRLEN GETRANGE SUBSTR SETRANGE GETBIT SETBIT INCR DECR INCRBY
        DECRBY INCRBYFLOAT DEL UNLINK EXISTS TYPE
        EXPIRE PEXPIRE EXPIREAT PEXPIREAT TTL PTTL EXPIRETIME PEXPIRETIME PERSIST SCAN KEYS FLUSHALL
        FLUSHDB CLUSTER READONLY READWRITE ASKING WAIT CONFIG NOSUCH UNWATCH TIME ROLE LASTSAVE
        MODULE SLOWLOG LATENCY ACL PUBSUB SCRIPT FUNCTION MEMORY OBJECT TOUCH LOLWUT DEBUG MULTI
        EXEC DISCARD WATCH HSET HSETNX HMSET HGET HMGET HGETALL HKEYS HVALS HLEN HSTRLEN HEXISTS
        HDEL HINCRBY HINCRBYFLOAT HRANDFIELD HSCAN
        SADD SREM SISMEMBER SMISMEMBER SMEMBERS SCARD SPOP SRANDMEMBER SSCAN
        EVAL EVALSHA EVAL_RO EVALSHA_RO
        BITFIELD BITFIELD_RO
    """.split()
    for name in names:
        for n in range(6):
            line = " ".join([name] + ["k%d" % i for i in range(n)])
            if line == "MULTI":
                # What follows would be queued.
                add("MULTI", "EXEC", "MULTI", "DISCARD")
            elif line != "HELLO":
                add(line)
    # Keys in every state with every command that takes one.
    for key in ["s", "n", "f", "ttl", "empty", "big", "nosuch"]:
        readers = """
            GET GETDEL GETEX STRLEN INCR DECR TYPE TTL PTTL EXPIRETIME PERSIST EXISTS DEL UNLINK
        """.split()
        for name in readers:
            # The rest of a time to live depends on the moment.
            if not (key == "ttl" and name in ("PTTL", "EXPIRETIME")):
                add(f"{name} {key}")
        # Those deleted it.
        add("SETUP")
        for a in ["0", "1", "-1", "-3", "5", "100", "-100", "x"]:
            for b in ["0", "3", "-1", "-2", "100", "9223372036854775807"]:
                add(f"GETRANGE {key} {a} {b}", f"SUBSTR {key} {a} {b}")
                # This Redis looks for the key first, so mistakes are tried with keys that exist.
                if a != "x" or key != "nosuch":
                    add(f"BITCOUNT {key} {a} {b}", f"BITCOUNT {key} {a} {b} BIT",
                        f"BITPOS {key} 1 {a} {b}", f"BITPOS {key} 0 {a} {b} BIT",
                        f"BITPOS {key} 0 {a}")
        for a in ["0", "1", "7", "8", "100", "-1", "x", "4294967296"]:
            add(f"SETUP {key}", f"GETBIT {key} {a}", f"SETBIT {key} {a} 1", f"SETBIT {key} {a} 2",
                f"GET {key}")
            if a != "4294967296":
                add(f"SETRANGE {key} {a} part", f"SETRANGE {key} {a} ''", f"GET {key}")
        add(f"SETUP {key}", f"BITCOUNT {key}", f"BITPOS {key} 0", f"BITPOS {key} 1")
        add(f"APPEND {key} tail", f"GETSET {key} new", f"SETNX {key} new", f"GET {key}")
        for n in NUMBERS:
            add(f"INCRBY {key} {n}", f"DECRBY {key} {n}")
        for n in NUMBERS + ["0.1", "-0.5", "inf", "-inf", "nan", "1e400", "0x10", ".5", "5.",
            "3.0e-2", "1e17", "1e-10", "' 1.5'", "infinity", "1_0"]:
            add(f"SETUP {key}", f"INCRBYFLOAT {key} {n}")
    # SET: every pair and many triples of options.
    options = ["NX", "XX", "GET", "KEEPTTL", "EX 10", "PX 10000", "EXAT 33000000000",
        "PXAT 33000000000000", "FOO", "EX", "EX x", "EX 0", "PX -1"]
    for key in ["s", "ttl", "nosuch"]:
        for a in options:
            add("SETUP", f"SET {key} v {a}", f"GET {key}", f"TTL {key}", f"set {key} v {a.lower()}")
            for b in options:
                add("SETUP", f"SET {key} v {a} {b}", f"GET {key}", f"TTL {key}")
    for a in options[:5]:
        for b in options[:5]:
            for c in options[:6]:
                add("SETUP", f"SET s v {a} {b} {c}", f"SET nosuch v {a} {b} {c}", "TTL s",
                    "TTL nosuch")
    for n in NUMBERS + ["9223372036854775", "9223372036854776", "9223372036854775806"]:
        for unit in ["EX", "PX", "EXAT", "PXAT"]:
            if n == "1" and unit == "PX":
                continue  # The reply depends on the server's speed.
            add("SETUP", f"SET s v {unit} {n}", "EXISTS s", f"GETEX n {unit} {n}", "EXISTS n")
        add("SETUP", f"SETEX s {n} v", "EXISTS s", *([] if n == "1" else [f"PSETEX n {n} v",
            "EXISTS n"]))
    # GETEX.
    getex = ["", "PERSIST", "EX 10", "PX 10000", "EXAT 33000000000", "PXAT 33000000000000", "NX",
        "KEEPTTL", "EX", "FOO", "GET"]
    for key in ["s", "ttl", "nosuch"]:
        for a in getex:
            for b in getex:
                add("SETUP", f"GETEX {key} {a} {b}".strip(), f"TTL {key}")
    # EXPIRE and its kin: every set of options, in both orders.
    conditions = ["NX", "XX", "GT", "LT", "nx", "FOO"]
    sets = [""] + conditions + [f"{a} {b}" for a in conditions for b in conditions]
    sets += [f"{a} {b} {c}" for a in conditions[:4] for b in conditions[:4] for c in conditions[:4]]
    for name, sooner, later in [
        ("EXPIRE", "10", "5000"),
        ("PEXPIRE", "10000", "5000000"),
        ("EXPIREAT", "10", "33000000000"),
        ("PEXPIREAT", "10000", "33000000000000"),
    ]:
        for key in ["s", "ttl", "nosuch"]:
            for given in sets:
                for when in [sooner, later] if len(given) < 7 else [sooner]:
                    add("SETUP", f"{name} {key} {when} {given}".strip(), f"TTL {key}")
        for n in NUMBERS + ["9223372036854775", "9223372036854776", "-9223372036854775",
            "-9223372036854776"]:
            if n == "1" and name == "PEXPIRE":
                continue  # The reply depends on the server's speed.
            add("SETUP", f"{name} s {n}", "EXISTS s", f"{name} s {n} FOO", f"{name} nosuch {n}")
    # Hashes, and hashes where strings are expected and the other way round.
    fresh = ["DEL h", "HSET h a 1 b two c 3.5 e ''"]
    for line in [
        "HGET h a", "HGET h nosuch", "HMGET h a nosuch b a", "HGETALL h", "HKEYS h", "HVALS h",
        "HLEN h", "HSTRLEN h b", "HSTRLEN h nosuch", "HEXISTS h a", "HEXISTS h nosuch",
        "HSET h a 2", "HSET h a 2 x y", "HSET h x 1 x 2 y 3", "HSET h a", "HSET h a 1 b",
        "HMSET h a 2 z 3", "HMSET h a", "HMSET h a 1 b", "HSETNX h a 9", "HSETNX h x 9",
        "HSETNX h x 9 y", "HDEL h a", "HDEL h a a nosuch b", "HDEL h a b c e", "HDEL h nosuch",
        "TYPE h", "OBJECT ENCODING h", "OBJECT REFCOUNT h", "EXISTS h", "TOUCH h", "TTL h",
        "EXPIRE h 1000", "PERSIST h", "DEL h", "UNLINK h", "EXPIREAT h 1", "GET h", "SET h v",
        "SET h v NX", "SET h v GET", "SET h v XX", "SET h v KEEPTTL", "SETNX h v", "GETSET h v",
        "GETDEL h", "GETEX h", "GETEX h PERSIST", "APPEND h v", "STRLEN h", "INCR h", "DECRBY h 1",
        "INCRBYFLOAT h 1", "GETRANGE h 0 1", "SETRANGE h 0 x", "GETBIT h 1", "SETBIT h 1 1",
        "BITCOUNT h", "BITPOS h 1", "SUBSTR h 0 1", "MGET h s", "MSET h 1 s 2", "SETEX h 100 v",
        "HRANDFIELD h 0", "HRANDFIELD h 100", "HRANDFIELD h 100 WITHVALUES",
        "HRANDFIELD h 4 withvalues", "HRANDFIELD h 1 x", "HRANDFIELD h x", "HRANDFIELD h 1 x y",
        "HRANDFIELD h -9223372036854775808", "HRANDFIELD h 9223372036854775807 WITHVALUES",
        "HRANDFIELD h -9223372036854775807 WITHVALUES", "HRANDFIELD nosuch 5 WITHVALUES",
        "HRANDFIELD nosuch -5", "HRANDFIELD nosuch", "HSCAN h 0", "HSCAN h 0 MATCH [ab]",
        "HSCAN h 0 COUNT 1", "HSCAN h 0 COUNT 1 MATCH x*", "HSCAN h 0 COUNT 0", "HSCAN h 0 COUNT x",
        "HSCAN h x", "HSCAN h 0 FOO 1", "HSCAN h 0 MATCH", "HSCAN nosuch 0", "HSCAN nosuch x",
    ]:
        add("SETUP", *fresh, line, "TTL h", "TYPE h", "HGETALL h")
    for field in ["a", "b", "c", "e", "nosuch"]:
        for n in NUMBERS:
            add("SETUP", *fresh, f"HINCRBY h {field} {n}", f"HGET h {field}")
        for n in NUMBERS + ["0.1", "-0.5", "inf", "-inf", "nan", ".5", "5.", "3.0e-2", "' 1.5'"]:
            add("SETUP", *fresh, f"HINCRBYFLOAT h {field} {n}", f"HGET h {field}")
    for key in ["s", "n", "empty"]:
        for line in ["HGET {} a", "HSET {} a 1", "HSETNX {} a 1", "HMSET {} a 1", "HMGET {} a",
            "HGETALL {}", "HKEYS {}", "HVALS {}", "HLEN {}", "HSTRLEN {} a", "HEXISTS {} a",
            "HDEL {} a", "HINCRBY {} a 1", "HINCRBYFLOAT {} a 1", "HRANDFIELD {}", "HRANDFIELD {} 1",
            "HSCAN {} 0", "HSET {} a", "HINCRBY {} a x", "HINCRBYFLOAT {} a x"]:
            add("SETUP", line.format(key), f"GET {key}")
    # A small hash is packed until it has too many fields, or one of them is too long.
    many = " ".join(f"f{n} {n}" for n in range(512))
    add("DEL h", f"HSET h {many}", "OBJECT ENCODING h", "HSET h more 1", "OBJECT ENCODING h",
        "HLEN h", "HGET h f77", "HDEL h f77 f77 f78", "HLEN h", "DEL h", f"HSET h a {'x' * 64}",
        "OBJECT ENCODING h", f"HSET h b {'x' * 65}", "OBJECT ENCODING h", "HSTRLEN h b")
    # A large hash has a row for each field, here.
    long = "x" * 700
    fresh = ["DEL h", f"HSET h a 1 b two c 3.5 e '' f {long} g {long} i {long}"]
    for line in [
        "HGET h a", "HGET h nosuch", "HMGET h a nosuch b a", "HGETALL h", "HKEYS h", "HVALS h",
        "HLEN h", "HSTRLEN h f", "HSTRLEN h nosuch", "HEXISTS h a", "HEXISTS h nosuch",
        "HSET h a 2", "HSET h a 2 x y", "HSET h x 1 x 2 y 3", "HMSET h a 2 z 3", "HSETNX h a 9",
        "HSETNX h x 9", "HDEL h a", "HDEL h a a nosuch b", "HDEL h a b c e f g i", "HDEL h nosuch",
        "HINCRBY h a 2", "HINCRBY h b 2", "HINCRBY h x 2", "HINCRBYFLOAT h c 1",
        "HINCRBYFLOAT h e 1", "HINCRBYFLOAT h x 1.5", "TYPE h", "OBJECT ENCODING h", "EXISTS h",
        "EXPIRE h 1000", "PERSIST h", "DEL h", "UNLINK h", "EXPIREAT h 1", "GET h", "SET h v",
        "SET h v KEEPTTL", "GETDEL h", "APPEND h v", "STRLEN h",
        "HRANDFIELD h 0", "HRANDFIELD h 100", "HRANDFIELD h 100 WITHVALUES", "HSCAN h 0",
        "HSCAN h 0 MATCH [ab]", "HSCAN h 0 COUNT 100 MATCH x*", "HSCAN h x",
        "HRANDFIELD h -9223372036854775808",
    ]:
        add("SETUP", *fresh, line, "TTL h", "TYPE h", "HGETALL h")
    add("DEL {t}h {t}n", f"HSET {{t}}h a 1 b {long} c {long} d {long}", "COPY {t}h {t}n",
        "HGETALL {t}n", "HSET {t}n b 2 e 3", "RENAME {t}n {t}h", "HGETALL {t}h", "EXISTS {t}n",
        "DEL {t}h")
    add("FLUSHALL", "HSET h a 1", "SCAN 0 TYPE hash COUNT 1000", "SCAN 0 TYPE string COUNT 1000",
        "SCAN 0 TYPE HASH COUNT 1000", "DBSIZE", "KEYS *", "EXPIREAT h 1", "DBSIZE", "HGET h a",
        "HSET h a 1")
    # Sets: of integers, small ones, and large ones, which have a row for each member here.
    long = "x" * 700
    fresh = ["DEL {t}m {t}o {t}l {t}h {t}to", "SADD {t}m 3 1 2 70000", "SADD {t}o 2 3 a ''",
        f"SADD {{t}}l 1 a {long}1 {long}2 {long}3", "HSET {t}h a 1"]
    for line in [
        "SADD {t}m 1", "SADD {t}m 4 4 a", "SADD {t}m 9223372036854775807", "SADD {t}l b", "SADD {t}m",
        "SADD {t}m 007 +1 -0 ''", "SREM {t}m 1 x 1", "SREM {t}m 1 2 3 70000", "SREM {t}o a ''",
        "SREM {t}l a", "SREM none a", "SISMEMBER {t}m 3", "SISMEMBER {t}m 03", "SISMEMBER {t}o ''",
        "SISMEMBER {t}l a", "SISMEMBER none a", "SMISMEMBER {t}m 1 x 3", "SMISMEMBER none 1 2",
        "SMEMBERS {t}m", "SMEMBERS {t}o", "SMEMBERS {t}l", "SMEMBERS none", "SCARD {t}m",
        "SCARD {t}l", "SCARD none", "SPOP {t}m 100", "SPOP {t}l 100", "SPOP {t}m 0", "SPOP none",
        "SPOP none 5", "SPOP none 0", "SPOP {t}m -1", "SPOP {t}m x", "SPOP {t}m 1 2",
        "SRANDMEMBER {t}m 0", "SRANDMEMBER {t}m 100", "SRANDMEMBER {t}l 100", "SRANDMEMBER none",
        "SRANDMEMBER none 5", "SRANDMEMBER none -5", "SRANDMEMBER {t}m x", "SRANDMEMBER {t}m 1 2",
        "SRANDMEMBER {t}m -9223372036854775808", "SSCAN {t}m 0", "SSCAN {t}l 0 COUNT 100",
        "SSCAN {t}m 0 MATCH [12]*", "SSCAN {t}m x", "SSCAN {t}m 0 COUNT 0", "SSCAN {t}m 0 FOO 1",
        "SSCAN {t}m 0 NOVALUES", "SSCAN none 0", "SMOVE {t}m {t}o 1", "SMOVE {t}m {t}o 3",
        "SMOVE {t}m {t}o none", "SMOVE {t}m {t}m 1", "SMOVE {t}m {t}to 1", "SMOVE {t}none {t}m 1",
        "SMOVE {t}m {t}o", "SINTER", "SUNION", "SDIFF", "SINTERSTORE {t}m", "SINTERCARD 1",
        "SMOVE {t}m {t}h 1", "SMOVE {t}h {t}m 1", "SMOVE {t}l {t}m a",
        *[f"{name} {{t}}{keys}" for name in ["SINTER", "SUNION", "SDIFF", "SINTERSTORE {t}to",
            "SUNIONSTORE {t}to", "SDIFFSTORE {t}to", "SINTERSTORE {t}m", "SUNIONSTORE {t}h",
            "SDIFFSTORE {t}l"]
            for keys in ["m", "m {t}o", "m {t}o {t}l", "l {t}o {t}none", "none", "none {t}h",
                "m {t}h", "m {t}m"]],
        "SINTERCARD 2 {t}m {t}o", "SINTERCARD 2 {t}m {t}o LIMIT 1", "SINTERCARD 1 {t}l LIMIT 0",
        "SINTERCARD 2 {t}m {t}none", "SINTERCARD 0 {t}m", "SINTERCARD -1 {t}m", "SINTERCARD x {t}m",
        "SINTERCARD 2 {t}m", "SINTERCARD 1 {t}m LIMIT -1", "SINTERCARD 1 {t}m LIMIT x",
        "SINTERCARD 1 {t}m LIMIT", "SINTERCARD 1 {t}m FOO 1", "SINTERCARD 2 {t}m {t}h",
        "TYPE {t}m", "OBJECT ENCODING {t}m", "OBJECT ENCODING {t}l", "EXPIREAT {t}m 33000000000",
        "COPY {t}m {t}to", "COPY {t}l {t}to", "RENAME {t}l {t}m", "RENAME {t}m {t}h", "GET {t}m",
        "SET {t}m v", "SET {t}m v GET", "INCR {t}m", "HGET {t}m a", "HSET {t}m a 1", "SADD {t}h a",
        "SCARD {t}h", "SMEMBERS {t}h", "SPOP {t}h", "SRANDMEMBER {t}h", "SSCAN {t}h 0", "SREM {t}h a",
        "SISMEMBER {t}h a", "SMISMEMBER {t}h a", "DEL {t}m",
    ]:
        add(*fresh, line, "EXPIRETIME {t}m", *[f"TYPE {{t}}{key}" for key in ["m", "o", "to"]],
            *[f"SMEMBERS {{t}}{key}" for key in ["m", "o", "l", "h", "to"]])
    many = " ".join(str(n) for n in range(512))
    add("DEL {t}m", f"SADD {{t}}m {many}", "OBJECT ENCODING {t}m", "SADD {t}m 512",
        "OBJECT ENCODING {t}m", "SREM {t}m 7 8 9", "SCARD {t}m", "SINTER {t}m {t}m",
        "DEL {t}o {t}l {t}h {t}to", "SCAN 0 TYPE set COUNT 1000", "DEL {t}m")
    # Several keys.
    add("SETUP", "MGET s nosuch n s", "MSET a 1 b 2 a 3", "MGET a b", "MSET a 1 b",
        "DEL a a b nosuch", "UNLINK s s", "EXISTS n n nosuch")
    add("MSET", "MSET a", "MSET a 1 b 2", "EXISTS a b a", "TYPE a", "DBSIZE", "KEYS *",
        "KEYS nosuch*", "KEYS [ab]", "KEYS ?", "KEYS \\\\a", "KEYS ''")
    # Several keys of one partition.
    fresh = ["DEL {t}s {t}h {t}d {t}new", "SET {t}s text", "HSET {t}h a 1",
        "SET {t}d dated EXAT 33000000000"]
    for line in [
        "RENAME {t}s {t}new", "RENAME {t}s {t}h", "RENAME {t}h {t}s", "RENAME {t}d {t}s",
        "RENAME {t}s {t}d", "RENAME {t}s {t}s", "RENAME {t}none {t}s", "RENAME {t}none {t}none",
        "RENAME {t}s", "RENAME {t}s {t}h x", "RENAMENX {t}s {t}new", "RENAMENX {t}s {t}h",
        "RENAMENX {t}s {t}s", "RENAMENX {t}none {t}s", "RENAMENX {t}none {t}none",
        "RENAMENX {t}d {t}new", "COPY {t}s {t}new", "COPY {t}h {t}new", "COPY {t}d {t}new",
        "COPY {t}s {t}h", "COPY {t}s {t}h REPLACE", "COPY {t}d {t}s replace", "COPY {t}s {t}s",
        "COPY {t}s {t}s REPLACE", "COPY {t}none {t}s", "COPY {t}none {t}s REPLACE",
        "COPY {t}s {t}new FOO", "COPY {t}s {t}new DB", "COPY {t}s {t}new DB x",
        "COPY {t}s {t}new DB -1", "COPY {t}s {t}new DB 99", "COPY {t}s {t}new DB 0",
        "COPY {t}s {t}new DB 0 REPLACE", "COPY {t}s {t}s DB 0", "COPY {t}s",
        "MSETNX {t}new 1 {t}new2 2", "MSETNX {t}new 1 {t}s 2", "MSETNX {t}new 1 {t}h 2",
        "MSETNX {t}new 1 {t}new 2", "MSETNX {t}new", "MSETNX {t}new 1 {t}new2", "MSETNX",
    ]:
        add(*fresh, line, "MGET {t}s {t}d {t}new {t}new2", "TYPE {t}s", "TYPE {t}h", "TYPE {t}d",
            "TYPE {t}new", "HGETALL {t}h", "EXPIRETIME {t}s", "EXPIRETIME {t}d",
            "EXPIRETIME {t}new", "DEL {t}new2")
    # Integers of any width.
    for key in ["s", "nosuch", "ttl", "h"]:
        for line in [
            "GET u8 0", "GET i8 #1", "GET i64 3", "GET u63 1", "GET u1 100 GET i5 7", "",
            "SET u8 0 65", "SET i4 #3 -8 GET i4 #3", "SET u4 2 -1", "SET i8 0 200", "SET i64 1 -2",
            "INCRBY u8 0 300", "INCRBY i3 100 -5", "INCRBY u2 0 1 INCRBY u2 0 1 INCRBY u2 0 3",
            "OVERFLOW SAT INCRBY u8 0 300 INCRBY i8 8 -300", "OVERFLOW sat SET u4 0 -1 GET u4 0",
            "OVERFLOW FAIL INCRBY u8 0 300", "OVERFLOW FAIL SET i8 100 200 GET i8 100",
            "OVERFLOW FAIL INCRBY u2 0 3 OVERFLOW WRAP INCRBY u2 0 3", "OVERFLOW SAT",
            "INCRBY i64 0 9223372036854775807 INCRBY i64 0 9223372036854775807",
            "OVERFLOW SAT INCRBY i64 0 9223372036854775807 INCRBY i64 0 9223372036854775807",
            "OVERFLOW SAT INCRBY u63 0 -9223372036854775808 INCRBY u63 0 9223372036854775807",
            "GET u64 0", "GET i65 0", "GET u0 0", "GET x8 0", "GET U8 0", "GET u8", "GET u8 -1",
            "GET u8 #x", "GET u8 4294967296", "SET u8 0", "SET u8 0 x", "FOO", "OVERFLOW",
            "OVERFLOW x SET u8 0 1", "GET u8 0 FOO",
        ]:
            add("SETUP", "DEL h", "HSET h a 1", f"BITFIELD {key} {line}".strip(),
                f"BITFIELD_RO {key} {line}".strip(), f"TYPE {key}",
                f"GET {key}", f"STRLEN {key}")
    add("FLUSHALL", "RANDOMKEY", "SET only 1", "RANDOMKEY", "EXPIREAT only 1", "RANDOMKEY",
        "RANDOMKEY x")
    # Scans, with one key at most, because the order differs.
    add("FLUSHALL", "DBSIZE", "KEYS *", "SCAN 0", "SET one 1", "SCAN 0 COUNT 1000",
        "SCAN 0 MATCH o* COUNT 1000", "SCAN 0 COUNT 1000 MATCH x*")
    add("SCAN 0 TYPE string COUNT 1000", "SCAN 0 TYPE list COUNT 1000",
        "SCAN 0 TYPE nosuch COUNT 1000", "SCAN x", "SCAN -1", "SCAN 0 COUNT", "SCAN 0 COUNT 0")
    add("SCAN 0 COUNT -1", "SCAN 0 COUNT x", "SCAN 0 MATCH", "SCAN 0 FOO 1", "SCAN 0 FOO",
        "SCAN 18446744073709551615 COUNT 5", "SCAN 18446744073709551616", "SCAN ''")
    add("SCAN 0 COUNT 9223372036854775808", "SCAN 0 MATCH * MATCH x COUNT 1000", "SCAN ' 0'",
        "SCAN 00", "SCAN +0", "SCAN 0 TYPE", "scan 0 count 1000 type STRING")
    for mode in ["SYNC", "ASYNC", "async", "FOO", "SYNC ASYNC", "SYNC SYNC"]:
        add(f"FLUSHALL {mode}", f"FLUSHDB {mode}")
    # The connection.
    add("PING", "PING hello", "PING ''", "ECHO ''", "ECHO hello", "SELECT 0", "SELECT -1",
        "SELECT x", "SELECT 16", "SELECT 99999999999", "SELECT 1", "SELECT 0")
    add("HELLO x", "HELLO 1", "HELLO 4", "HELLO -1", "HELLO 3.0", "HELLO 2 FOO", "HELLO 3 AUTH",
        "HELLO 3 AUTH a", "HELLO 3 AUTH a b", "HELLO 2 SETNAME", "HELLO 2 SETNAME 'a b'")
    add("HELLO 3 AUTH default x SETNAME", "HELLO 2 AUTH nosuch x FOO", "HELLO '' ", "AUTH x",
        "AUTH default x", "AUTH nosuch x", "AUTH a b c", "AUTH default ''", "AUTH ''")
    add("CLIENT SETNAME me", "CLIENT GETNAME", "CLIENT SETNAME 'a b'", "CLIENT GETNAME",
        "CLIENT SETNAME ''", "CLIENT GETNAME", "CLIENT GETNAME x", "CLIENT ID x", "CLIENT SETNAME")
    add("CLIENT SETNAME a b", "CLIENT NOSUCH", "CLIENT nosuch a b", "CLIENT SETINFO LIB-NAME x",
        "CLIENT SETINFO LIB-VER 1", "CLIENT SETINFO", "CLIENT SETINFO a", "CLIENT SETINFO FOO bar")
    add("CLIENT NO-EVICT on", "CLIENT NO-EVICT off", "CLIENT NO-EVICT x", "CLIENT NO-EVICT",
        "CLIENT NO-TOUCH on", "CLIENT NO-TOUCH OFF", "CLIENT NO-TOUCH x", "CLIENT NO-TOUCH",
        "CLIENT ''")
    add("READONLY", "READWRITE", "ASKING", "READONLY x", "WAIT", "WAIT 0", "WAIT x 0", "WAIT 0 x",
        "WAIT 0 -1", "WAIT -1 1", "WAIT 0 10", "WAIT 0 1.5")
    add("COMMAND GETKEYS", "COMMAND GETKEYS GET", "COMMAND GETKEYS GET a",
        "COMMAND GETKEYS MSET a 1 b 2", "COMMAND GETKEYS PING", "COMMAND GETKEYS PING x",
        "COMMAND GETKEYS GET a b", "COMMAND GETKEYS NOSUCH a", "COMMAND GETKEYS MGET a b c")
    add("COMMAND GETKEYS SET a b EX 5", "COMMAND GETKEYS DEL a b", "COMMAND NOSUCH",
        "COMMAND COUNT x", "COMMAND LIST x", "COMMAND INFO nosuch", "COMMAND DOCS nosuch")
    add("COMMAND INFO get", "COMMAND INFO GET set", "CONFIG GET nosuch", "CONFIG GET",
        "CONFIG NOSUCH", "CONFIG GET maxmemory-policy", "CONFIG GET appendonly save",
        "CONFIG GET nosuch nosuch2")
    add("CONFIG GET SAVE", "CONFIG GET databases*x", "CLUSTER", "CLUSTER NOSUCH", "CLUSTER KEYSLOT",
        "CLUSTER KEYSLOT a", "CLUSTER KEYSLOT {a}b", "CLUSTER KEYSLOT a b", "CLUSTER MYID x")
    add("CLUSTER INFO x", "CLUSTER SLOTS x", "CLUSTER NODES x", "CLUSTER SHARDS x",
        "CLUSTER COUNTKEYSINSLOT", "CLUSTER COUNTKEYSINSLOT x", "CLUSTER COUNTKEYSINSLOT -1",
        "CLUSTER COUNTKEYSINSLOT 16384")
    add("CLUSTER COUNTKEYSINSLOT 0", "CLUSTER KEYSLOT ''", "CLUSTER KEYSLOT {}a",
        "CLUSTER KEYSLOT a{b}{c}", "NOSUCH", "nosuch a b", "'' a", "EVAL x 0")
    # Scripts. The tests of their crate compare what scripts can do; here is how they are called.
    add("SETUP", "SCRIPT FLUSH")
    for body in SCRIPTS:
        for how in ["EVAL", "EVAL_RO"]:
            for given in ["0", "1 s", "1 n 5", "1 nosuch 5 x", "2 {a}1 {a}2 5"]:
                add("SETUP", f"{how} '{body}' {given}", "GET s", "GET n", "GET nosuch", "GET {a}1")
        digest = hashlib.sha1(body.encode()).hexdigest()
        add(f"EVALSHA {digest} 1 n 5", f"evalsha {digest.upper()} 1 n 5", f"SCRIPT LOAD '{body}'",
            f"SCRIPT EXISTS {digest} {digest.upper()} {'0' * 40}", f"EVALSHA_RO {digest} 1 n 5",
            "SCRIPT FLUSH", f"EVALSHA {digest} 1 n 5", f"SCRIPT EXISTS {digest}")
    for count in ["-1", "x", "1.5", "2", "3", "99999999999999999999", "''"]:
        add(f"EVAL 'return 1' {count} {{a}}1 {{a}}2", f"EVALSHA {'0' * 40} {count} {{a}}1 {{a}}2")
    # Commands of dashboards and clients that look around.
    containers = """
        CLIENT CONFIG COMMAND MEMORY OBJECT SLOWLOG LATENCY ACL PUBSUB SCRIPT FUNCTION MODULE
    """.split()
    for container in containers:
        add(f"{container} NOSUCH", f"{container} HELP x", f"{container}|HELP",
            f"{container.lower()} {'x' * 200}")
    add("UNWATCH", "UNWATCH x", "TIME x", "ROLE", "ROLE x", "LASTSAVE x", "MODULE LIST",
        "MODULE LIST x", "DEBUG", "DEBUG SLEEP 0", "debug jmap", "RESET", "RESET x")
    add("SLOWLOG RESET", "CONFIG SET slowlog-log-slower-than -1", "SLOWLOG RESET", "SLOWLOG LEN",
        "SLOWLOG GET", "SLOWLOG GET 5", "SLOWLOG GET -1", "SLOWLOG GET -2", "SLOWLOG GET x",
        "SLOWLOG GET 1 2", "SLOWLOG LEN x")
    add("LATENCY LATEST", "LATENCY HISTORY command", "LATENCY HISTORY", "LATENCY RESET",
        "LATENCY RESET command fork", "LATENCY GRAPH nosuch", "LATENCY GRAPH",
        "LATENCY HISTOGRAM nosuch", "LATENCY DOCTOR x")
    add("ACL WHOAMI", "ACL USERS", "ACL LIST", "ACL GETUSER nosuch", "ACL GETUSER default",
        "ACL GETUSER", "ACL CAT nosuch", "ACL CAT a b", "ACL GENPASS 0", "ACL GENPASS 4097",
        "ACL GENPASS x", "ACL GENPASS 1 2", "ACL LOG", "ACL LOG RESET", "ACL LOG x", "ACL WHOAMI x")
    add("PUBSUB CHANNELS", "PUBSUB CHANNELS a*", "PUBSUB CHANNELS a b", "PUBSUB NUMSUB",
        "PUBSUB NUMSUB a b", "PUBSUB NUMPAT", "PUBSUB NUMPAT x", "PUBSUB SHARDCHANNELS",
        "PUBSUB SHARDCHANNELS a*", "PUBSUB SHARDNUMSUB a")
    add("SCRIPT EXISTS", "SCRIPT EXISTS a b", "SCRIPT FLUSH", "SCRIPT FLUSH ASYNC",
        "SCRIPT FLUSH sync", "SCRIPT FLUSH x", "SCRIPT FLUSH SYNC x", "SCRIPT KILL",
        "FUNCTION LIST", "FUNCTION LIST WITHCODE", "FUNCTION LIST LIBRARYNAME x",
        "FUNCTION LIST LIBRARYNAME", "FUNCTION LIST x")
    add("FUNCTION STATS", "FUNCTION FLUSH", "FUNCTION FLUSH ASYNC", "FUNCTION FLUSH x",
        "FUNCTION KILL")
    add("CLIENT REPLY ON", "CLIENT REPLY x", "CLIENT REPLY", "CLIENT UNPAUSE", "CLIENT PAUSE",
        "CLIENT PAUSE x", "CLIENT PAUSE -1", "CLIENT PAUSE 0 x", "CLIENT PAUSE 0 WRITE",
        "CLIENT PAUSE 0 all", "CLIENT PAUSE 1 WRITE x", "CLIENT TRACKINGINFO", "CLIENT GETREDIR")
    add("CLIENT TRACKING OFF", "CLIENT TRACKING x", "CLIENT CACHING YES", "CLIENT CACHING x",
        "CLIENT UNBLOCK 999999", "CLIENT UNBLOCK x", "CLIENT UNBLOCK 1 x",
        "CLIENT UNBLOCK 999999 ERROR", "CLIENT LIST TYPE x", "CLIENT LIST TYPE",
        "CLIENT LIST TYPE master")
    add("CLIENT LIST ID x", "CLIENT LIST ID", "CLIENT LIST ID 999999", "CLIENT LIST ID -1",
        "CLIENT LIST x", "CLIENT LIST TYPE normal x", "CLIENT KILL", "CLIENT KILL x",
        "CLIENT KILL 127.0.0.1:1", "CLIENT KILL ID x", "CLIENT KILL ID 0", "CLIENT KILL ID 999999")
    add("CLIENT KILL ID 999999 SKIPME x", "CLIENT KILL TYPE x", "CLIENT KILL TYPE master",
        "CLIENT KILL TYPE pubsub SKIPME no", "CLIENT KILL ADDR 127.0.0.1:1",
        "CLIENT KILL LADDR 127.0.0.1:1", "CLIENT KILL USER nosuch",
        "CLIENT KILL SKIPME yes ID 999999")
    add("CLIENT KILL ID 999999 TYPE", "CLIENT KILL FOO bar", "CLIENT KILL MAXAGE x",
        "CLIENT KILL MAXAGE 0", "CLIENT KILL MAXAGE 1000000", "CLIENT INFO x", "CLIENT GETREDIR x")
    add("CONFIG RESETSTAT", "CONFIG RESETSTAT x", "CONFIG REWRITE", "CONFIG SET",
        "CONFIG SET timeout", "CONFIG SET timeout x", "CONFIG SET timeout -1",
        "CONFIG SET timeout 0", "CONFIG SET nosuch 1", "CONFIG SET timeout 0 timeout 1",
        "CONFIG SET timeout 0 port", "CONFIG SET cluster-enabled x")
    add("CONFIG SET slowlog-max-len -1", "CONFIG SET slowlog-max-len 128",
        "CONFIG SET slowlog-log-slower-than 10000", "CONFIG SET slowlog-log-slower-than x",
        "CONFIG SET maxclients 0", "CONFIG SET maxclients x", "CONFIG SET appendonly no",
        "CONFIG SET save ''")
    settings = """
        appendonly databases hz maxclients maxmemory-clients notify-keyspace-events save
        slowlog-log-slower-than slowlog-max-len timeout latency-monitor-threshold
        enable-debug-command activedefrag appendfsync cluster-enabled
    """.split()
    for setting in settings:
        add(f"CONFIG GET {setting}")
    add("SETUP", "SET long 012345678901234567890123456789012345678901234",
        "SET short 01234567890123456789012345678901234567890123")
    for key in ["s", "n", "f", "empty", "big", "long", "short", "nosuch"]:
        add(f"OBJECT ENCODING {key}", f"OBJECT REFCOUNT {key}", f"OBJECT FREQ {key}",
            f"OBJECT IDLETIME {key}", f"MEMORY USAGE {key}", f"TOUCH {key}", f"TOUCH {key} {key}")
    add("TOUCH s n nosuch", "MEMORY USAGE s SAMPLES 0", "MEMORY USAGE s SAMPLES",
        "MEMORY USAGE s SAMPLES -1", "MEMORY USAGE s SAMPLES x", "MEMORY USAGE nosuch SAMPLES 5",
        "MEMORY USAGE s FOO 5", "MEMORY MALLOC-STATS x", "MEMORY PURGE", "MEMORY DOCTOR x")
    add("COMMAND LIST FILTERBY MODULE x", "COMMAND LIST FILTERBY ACLCAT nosuch",
        "COMMAND LIST FILTERBY PATTERN xq*", "COMMAND LIST FILTERBY PATTERN hello",
        "COMMAND LIST FILTERBY PATTERN", "COMMAND LIST FILTERBY x y", "COMMAND LIST x y z",
        "COMMAND GETKEYS OBJECT ENCODING k")
    add("COMMAND GETKEYS MEMORY USAGE k", "COMMAND GETKEYS TOUCH a b",
        "COMMAND GETKEYS OBJECT HELP", "COMMAND GETKEYS OBJECT ENCODING",
        "COMMAND GETKEYS CLIENT LIST", "COMMAND INFO touch", "COMMAND INFO time unwatch role",
        "COMMAND INFO object|encoding", "COMMAND INFO memory|usage", "COMMAND INFO client|id",
        "COMMAND DOCS nosuch nosuch2")
    # The next round begins without keys.
    add("get", "GeT s", "FLUSHALL", "QUIT")
    return out


TRANSACTIONS = 1000
# Keys of one slot.
KEYS = ["{t}a", "{t}b", "{t}c", "{t}d"]
VALUES = ["1", "-7", "word", "''", "1.5", "9223372036854775807"]


def random_command(rng):
    """A command on one or more of KEYS. Its reply does not depend on the moment."""
    key, other, value = rng.choice(KEYS), rng.choice(KEYS), rng.choice(VALUES)
    return rng.choice([
        f"GET {key}", f"STRLEN {key}", f"EXISTS {key} {other}", f"MGET {key} {other} {key}",
        f"TYPE {key}", f"EXPIRETIME {key}", f"TOUCH {key} {other}", f"GETEX {key}",
        f"SET {key} {value}", f"SET {key} {value} NX", f"SET {key} {value} XX GET",
        f"SET {key} {value} EXAT 33000000000", f"SET {key} {value} KEEPTTL", f"SETNX {key} {value}",
        f"MSET {key} {value} {other} 2", f"GETSET {key} {value}", f"APPEND {key} tail",
        f"INCR {key}", f"DECRBY {key} 3", f"INCRBY {key} {value}", f"INCRBYFLOAT {key} 0.5",
        f"DEL {key}", f"UNLINK {key} {other}", f"GETDEL {key}", f"PERSIST {key}",
        f"EXPIREAT {key} 33000000000", f"EXPIREAT {key} 33000000001 GT", f"EXPIREAT {key} 1",
        f"GETEX {key} EXAT 33000000002", f"GETEX {key} PERSIST", f"SETEX {key} 1000 {value}",
        f"RENAME {key} {other}", f"RENAMENX {key} {other}", f"COPY {key} {other}",
        f"COPY {key} {other} REPLACE", f"MSETNX {key} {value} {other} 2",
        f"BITFIELD {key} INCRBY u8 #1 200 OVERFLOW SAT SET i5 3 -100 GET u16 0",
        *random_hash_commands(rng, key, value),
        *random_set_commands(rng, key, other),
    ])


def random_hash_commands(rng, key, value):
    """As many commands on hashes again: some find strings where hashes should be."""
    field, other = rng.choice("abcd"), rng.choice("abcd")
    if rng.random() < 0.2:
        # Some of these together make a large hash.
        value = "long" * 200
    return [
        f"HGET {key} {field}", f"HMGET {key} {field} {other} {field}", f"HGETALL {key}",
        f"HKEYS {key}", f"HVALS {key}", f"HLEN {key}", f"HSTRLEN {key} {field}",
        f"HEXISTS {key} {field}", f"HSET {key} {field} {value}",
        f"HSET {key} {field} {value} {other} 2", f"HMSET {key} {other} {value} {field} 3",
        f"HSETNX {key} {field} {value}", f"HDEL {key} {field}", f"HDEL {key} {field} {other}",
        f"HINCRBY {key} {field} 3", f"HINCRBY {key} {field} {value}",
        f"HINCRBYFLOAT {key} {field} 0.5", f"HRANDFIELD {key} 10 WITHVALUES", f"HSCAN {key} 0",
        f"HSCAN {key} 0 MATCH [ab]", f"DEL {key}", f"TYPE {key}",
    ]


def random_set_commands(rng, key, other):
    """Commands on sets, which find other values, too."""
    members = ["1", "-7", "300", "70000", "a", "b", "long" * 200]
    member, another = rng.choice(members), rng.choice(members)
    return [
        f"SADD {key} {member}", f"SADD {key} {member} {another} 5", f"SADD {other} {another}",
        f"SREM {key} {member}", f"SREM {key} {member} {another} 5", f"SISMEMBER {key} {member}",
        f"SMISMEMBER {key} {member} {another}", f"SMEMBERS {key}", f"SCARD {key}",
        f"SPOP {key} 100", f"SRANDMEMBER {key} 100", f"SSCAN {key} 0", f"SMOVE {key} {other} {member}",
        f"SINTER {key} {other}", f"SUNION {key} {other}", f"SDIFF {key} {other}",
        f"SINTERCARD 2 {key} {other}", f"SINTERSTORE {{t}}d {key} {other}",
        f"SUNIONSTORE {{t}}d {key} {other}", f"SDIFFSTORE {{t}}d {key} {other}",
    ]


def random_mistake(rng):
    """A command that fails: when it is queued, when it is executed, or at once."""
    key = rng.choice(KEYS)
    return rng.choice([
        "NOSUCH", f"GET {key} x", "GET", f"SET {key} v EX x", f"SET {key} v NX XX", f"WATCH {key}",
        "MULTI", "MULTI x", "DISCARD x", "EXEC x", "WATCH", f"SETEX {key} 0 v", "SELECT x",
        f"INCRBY {key} x", f"EXPIRE {key} 10 NX XX", "CLIENT NOSUCH", f"MSET {key}", "OBJECT",
    ])


def transactions(rng, count):
    """Random transactions of two clients: pairs of a client and a command. Client 0 makes them, and
    client 1 changes keys before, while or after it does."""
    for _ in range(count):
        for _ in range(rng.choice([0, 0, 1, 3])):
            yield rng.randrange(2), random_command(rng)
        for _ in range(rng.choice([0, 1, 1, 2])):
            yield 0, "WATCH " + " ".join(rng.sample(KEYS, rng.randint(1, 3)))
        # One change at most: a key that came and went again is changed for Redis, but not for
        # Doyen.
        meddles = [rng.choice(["before", "while", "never"])]
        if meddles == ["before"]:
            yield rng.randrange(2), random_command(rng)
        yield 0, rng.choice(["MULTI"] * 12 + ["UNWATCH", "EXEC", "DISCARD", "PING"])
        size = rng.choice([0, 1, 2, 3, 5, 8])
        for at in range(size):
            if meddles == ["while"] and at == size // 2:
                yield 1, random_command(rng)
            kind = rng.random()
            if kind < 0.8:
                yield 0, random_command(rng)
            elif kind < 0.93:
                yield 0, rng.choice(["PING", "PING hello", "ECHO hello", "SELECT 0", "UNWATCH",
                    "CLIENT GETNAME", "CLIENT SETNAME me"])
            else:
                yield 0, random_mistake(rng)
        yield 0, rng.choice(["EXEC"] * 8 + ["DISCARD", "exec"])
        # Whatever the line above ended, this one ends what is left, and shows all keys.
        yield 0, rng.choice(["DISCARD", "UNWATCH", "EXEC"])
        # An EXEC without MULTI leaves keys watched, which may change twice until the next one.
        yield 0, "UNWATCH"
        yield 1, "MGET " + " ".join(KEYS)
        yield 1, "HGETALL " + rng.choice(KEYS)
    # The next round begins without keys.
    yield 1, "FLUSHALL"


def words(line):
    """Splits a line at blanks, except between single quotes."""
    return [w[1:-1] if w.startswith("'") else w for w in re.findall(r"'[^']*'|\S+", line)]


def encode(args):
    parts = [w.encode() for w in args]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts)


class Client:
    def __init__(self, port, protocol):
        self.port, self.protocol = port, protocol
        self.connect()

    def connect(self):
        self.socket = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        self.buffer = b""
        if self.protocol == 3:
            self.ask(["HELLO", "3"])

    def ask(self, args):
        self.socket.sendall(encode(args))
        return self.reply()

    def ask_all(self, lines):
        self.socket.sendall(b"".join(encode(words(line)) for line in lines))
        for _ in lines:
            self.reply()

    def more(self):
        got = self.socket.recv(65536)
        if not got:
            raise ConnectionError("closed")
        self.buffer += got

    def line(self):
        while b"\r\n" not in self.buffer:
            self.more()
        line, self.buffer = self.buffer.split(b"\r\n", 1)
        return line + b"\r\n"

    def reply(self):
        line = self.line()
        kind, rest = line[:1], line[1:-2]
        if kind in b"$=!" and rest != b"-1":
            while len(self.buffer) < int(rest) + 2:
                self.more()
            body, self.buffer = self.buffer[: int(rest) + 2], self.buffer[int(rest) + 2 :]
            return line + body
        if kind in b"*~%>" and rest != b"-1":
            count = int(rest) * (2 if kind == b"%" else 1)
            return line + b"".join(self.reply() for _ in range(count))
        return line


def compare(redis, doyen, protocol, known_here, verbose, seed):
    clients = [(Client(redis, protocol), Client(doyen, protocol)) for _ in range(2)]
    asked = differs = known = 0
    seen = set()
    # The last commands, each with its client, to show how a reply came about.
    story = collections.deque(maxlen=12)
    single = [(0, line) for line in commands()]
    several = list(transactions(random.Random(seed), TRANSACTIONS))
    for place, (number, line) in enumerate(single + several):
        a, b = clients[number]
        if line.split()[0] == "SETUP":
            a.ask_all(SETUP), b.ask_all(SETUP)
            continue
        asked += 1
        args = words(line)
        ra, rb = a.ask(args), b.ask(args)
        story.append(f"{number}: {line}")
        if args[:1] and args[0].upper() in ("HELLO", "QUIT", "RESET"):
            a.connect(), b.connect()
        if ra == rb:
            continue
        # A second may end between the two replies.
        if args[0] == "TTL" and abs(int(ra[1:]) - int(rb[1:])) <= 1:
            continue
        # The order of keys differs, and that of members and of the fields of a large hash.
        unordered = """KEYS HGETALL HKEYS HVALS HSCAN HRANDFIELD EXEC SMEMBERS SPOP SRANDMEMBER SSCAN
            SINTER SUNION SDIFF""".split()
        if args[0].upper() in unordered and sorted(ra.split(b"\r\n")) == sorted(rb.split(b"\r\n")):
            continue
        why = next((why for pattern, why in KNOWN + known_here if re.search(pattern, line)), None)
        if why is not None:
            known += 1
            if not verbose:
                continue
        else:
            differs += 1
        if (line, ra, rb) not in seen:
            seen.add((line, ra, rb))
            note = f"   (on purpose: {why})" if why is not None else ""
            print(f"RESP{protocol} {line}{note}\n    redis {ra[:200]!r}\n    doyen {rb[:200]!r}")
            if place >= len(single):
                print("    after " + " | ".join(story))
    port = "plain port" if known_here is KNOWN_PLAIN else "cluster-aware port"
    print(f"{port}, RESP{protocol}: {asked} commands, {differs} replies differ, {known} on purpose")
    return differs


def until(holds):
    """Waits until this holds, and does not fail."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if holds():
                return
        except OSError:
            pass
        time.sleep(0.05)
    sys.exit("a server did not start within a minute")


def free():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    binary, verbose = sys.argv[1], "--verbose" in sys.argv
    seeds = [int(b) for a, b in zip(sys.argv, sys.argv[1:]) if a == "--seed"]
    seed = seeds[0] if seeds else random.randrange(1 << 32)
    print(f"seed of the transactions: {seed}")
    with tempfile.TemporaryDirectory() as place:
        plain, cluster = free(), free()
        quiet = ["--save", "", "--dir", place, "--logfile", "redis.log", "--bind", "127.0.0.1"]
        started = [
            subprocess.Popen(["redis-server", "--port", str(plain), *quiet]),
            # Without a cluster port it would need the port 10,000 above its own.
            subprocess.Popen(["redis-server", "--port", str(cluster), "--cluster-enabled", "yes",
                "--cluster-port", str(free()), "--cluster-config-file", f"nodes-{cluster}.conf",
                *quiet]),
        ]
        node = subprocess.Popen(
            [binary, "run", "--log", "error", "--listen", ":0", "--data", ":0", "--resp", ":0",
                "--resp-cluster", ":0", "--http", "off"],
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(node)
        try:
            ready = dict(pair.split("=", 1) for pair in node.stdout.readline().split()[1:])
            port = {name: int(ready[name].rsplit(":", 1)[1]) for name in ("resp", "resp-cluster")}
            until(lambda: [Client(redis, 2) for redis in (plain, cluster)])
            Client(cluster, 2).ask(["CLUSTER", "ADDSLOTSRANGE", "0", "16383"])
            until(lambda: Client(cluster, 2).ask(["GET", "k"]).startswith(b"$"))
            until(lambda: Client(port["resp"], 2).ask(["GET", "k"]).startswith(b"$"))
            pairs = [(plain, port["resp"], KNOWN_PLAIN), (cluster, port["resp-cluster"],
                KNOWN_CLUSTER)]
            differs = sum(compare(redis, doyen, protocol, known, verbose, seed) for redis, doyen,
                known in pairs for protocol in (2, 3))
        finally:
            for process in started:
                process.terminate()
            for process in started:
                process.wait()
    return 1 if differs else 0


if __name__ == "__main__":
    sys.exit(main())
