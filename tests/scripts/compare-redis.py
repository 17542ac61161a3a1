#!/usr/bin/env python3
"""Sends the same commands to redis-server and to Doyen's RESP ports, and compares the raw replies.

    compare-redis.py DOYEN-BINARY [--verbose] [--seed N] [--sequences N] [--server PATH]

Starts both on free ports. Every command is sent in RESP2 and in RESP3. After the single commands
come random transactions of two clients, and then random sequences on values of all kinds, small and
large. Their seed is printed. The server is redis-server 7.0; with --server, only the sequences run,
and the server may be newer (valkey-server 7.2 has the rules that redis-server 7.0 lacks).
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
    (r"(?i)^getex nosuch \S+ \S+$|^(LINDEX|LSET|XDEL|XACK|XCLAIM) k0( k\d)+$",
        "arguments are checked before the key"),
    (r"^GEORADIUSBYMEMBER(_RO)? k0( k\d)+$", "arguments are checked before the key"),
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
    (r"^Z(REV)?RANK k0 k1 k2$", "Redis has WITHSCORE since 7.2"),
    (r"^CONFIG SET (slowlog-max-len -1|maxclients 0)$", "limits are different"),
    (r"^CONFIG GET (databases|maxclients)$", "the reply is about this server"),
    (r"^OBJECT IDLETIME (?!nosuch)", "the time of the last use is not kept"),
    (r"^OBJECT REFCOUNT n$", "no two keys share a value"),
    (r"^MEMORY USAGE (?!nosuch|s FOO)\w+( SAMPLES 0)?$", "entries have another layout"),
    (r"^MEMORY DOCTOR|^MEMORY STATS", "the reply is about this server"),
]
# What a server before 7.2 does not have, or does by other rules: random sequences leave it out.
SINCE_7_2 = re.compile(r"WITHSCORE\b|XINFO (STREAM \S+ FULL|CONSUMERS|GROUPS)|-9223372036854775808"
    r"|XREADGROUP GROUP g c STREAMS \S+ 0 0|XCLAIM .* LASTID|XADD \S+ 1-x|EVAL .* B(L|R|Z)"
    r"|XSETID|XGROUP CREATECONSUMER|BLPOP \S+ 1e400"
    r"|XREAD STREAMS \S+stream \S+stream 0|ZRANK \S+ a FOO")
# On the plain port only. Redis refuses these without cluster mode.
KNOWN_PLAIN = [
    (r"(?i)^(readonly|readwrite|asking)$|^CLUSTER (KEYSLOT|COUNTKEYSINSLOT)\b",
        "both ports answer about the cluster"),
]
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
    "return redis.call([[xread]], [[BLOCK]], 0, [[STREAMS]], KEYS[1], 0)",
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
        BITFIELD BITFIELD_RO LPUSH RPUSH LPUSHX RPUSHX LPOP RPOP LLEN LINDEX LRANGE LSET LINSERT LREM
        LTRIM LPOS LMOVE RPOPLPUSH LMPOP BLPOP BRPOP BLMPOP BLMOVE BRPOPLPUSH ZADD ZINCRBY ZREM
        ZSCORE ZMSCORE ZRANK ZREVRANK ZCARD ZCOUNT ZLEXCOUNT ZRANGE ZREVRANGE ZRANGEBYSCORE
        ZREVRANGEBYSCORE ZRANGEBYLEX ZREVRANGEBYLEX ZRANGESTORE ZREMRANGEBYRANK ZREMRANGEBYSCORE
        ZREMRANGEBYLEX ZPOPMIN ZPOPMAX BZPOPMIN BZPOPMAX ZMPOP BZMPOP ZUNION ZINTER ZDIFF ZUNIONSTORE
        ZINTERSTORE ZDIFFSTORE ZINTERCARD ZRANDMEMBER ZSCAN PFADD PFCOUNT PFMERGE BITOP LCS SORT
        SORT_RO GEOADD GEOPOS GEODIST GEOHASH GEORADIUS GEORADIUS_RO GEORADIUSBYMEMBER
        GEORADIUSBYMEMBER_RO GEOSEARCH GEOSEARCHSTORE XADD XLEN XRANGE XREVRANGE XDEL XTRIM
        XSETID XREAD XREADGROUP XGROUP XACK XPENDING XCLAIM XAUTOCLAIM XINFO DUMP RESTORE
    """.split()
    for name in names:
        for n in range(6):
            line = " ".join([name] + ["k%d" % i for i in range(n)])
            add("DEL k0")
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


# Commands that change what a group of consumers knows.
OF_GROUPS = re.compile("X(READGROUP|ACK|CLAIM|AUTOCLAIM|GROUP)")

TRANSACTIONS = 1000
SEQUENCES = 100_000
# Keys of one slot.
KEYS = ["{t}a", "{t}b", "{t}c", "{t}d"]
# Counts of distinct elements, which no other command may damage: a damaged one is an error sooner
# in Doyen. Redis stores the count of one key in it, so none is asked for alone.
COUNTS = ["{t}count1", "{t}count2", "{t}count3"]
# What has a weight when it is sorted.
WEIGHED = ["1", "-7", "70000", "5000000000"]

# Random commands by kind of value, on one or more of KEYS. No reply depends on the moment.
# A number in front says how many of them there are. What is in braces is drawn by Draw, with the
# given number of words at most.
COMMANDS = {
    "string": """
        GET {k}| STRLEN {k}| MGET {k:3}| GETEX {k}| 3 SET {k} {value}| SET {k} {value} NX
        SET {k} {value} XX GET| SET {k} {value} EXAT 33000000000| SET {k} {value} KEEPTTL
        SETNX {k} {value}| MSET {k} {value} {k} 2| GETSET {k} {value}| APPEND {k} {value}| INCR {k}
        DECRBY {k} 3| INCRBY {k} {value}| INCRBYFLOAT {k} 0.5| GETDEL {k}| MSETNX {k} {value} {k} 2
        GETEX {k} EXAT 33000000002| GETEX {k} PERSIST| GETRANGE {k} {i} {i}| SETRANGE {k} 3 {value}
        SETBIT {k} 77 1| BITCOUNT {k}| BITPOS {k} 1
        BITPOS {k} 1 {i} {i}| BITCOUNT {k} {i} {i} BIT
        BITFIELD {k} INCRBY u8 #1 200 OVERFLOW SAT SET i5 3 -100 GET u16 0
        2 BITOP {bits} {k} {k:3}| BITOP NOT {k} {k}| LCS {k} {k}| LCS {k} {k} LEN
        LCS {k} {k} IDX MINMATCHLEN {n} WITHMATCHLEN
    """,
    "count": """
        5 PFADD {count} {m:30}| 2 PFADD {count} {number:30}| PFADD {count}| DEL {count}
        3 PFCOUNT {count} {count:2} {t}none| 3 PFMERGE {count} {count:2}
        EXPIREAT {count} 33000000000
    """,
    "place": """
        8 GEOADD {k} {place:20}| GEOADD {k} {geoadd} {place:3}| GEOPOS {k} {m:4}| GEODIST {k} {m} {m}
        GEODIST {k} {m} {m} {unit}| GEOHASH {k} {m:4}| ZREM {k} {m:3}
        4 GEOSEARCH {k} {around} {shape} {order} WITHDIST WITHHASH WITHCOORD
        2 GEOSEARCH {k} {around} {shape} {order} COUNT 100
        2 GEOSEARCHSTORE {k} {k} {around} {shape}
        GEORADIUS {k} {point} {radius} {order} WITHDIST| GEORADIUS {k} {point} {radius} STORE {k}
        GEORADIUS_RO {k} {point} {radius} {order}| GEORADIUSBYMEMBER {k} {m} {radius} WITHCOORD
    """,
    "sort": """
        3 RPUSH {k} {number:30}| 2 SADD {k} {number:30}| 2 ZADD {k} {scored:30}| RPUSH {k} {m:30}
        SORT {k}| SORT {k} DESC| SORT {k} LIMIT {n} {i}| SORT {k} ALPHA| SORT {k} ALPHA DESC GET # GET #
        SORT_RO {k} ALPHA LIMIT {n} {n}| SORT {k} STORE {k}| SORT {k} ALPHA LIMIT {n} {n} STORE {k}
        SORT {k} BY nosort STORE {k}| SORT {k} BY nosort DESC LIMIT {n} {n} STORE {k}
        SORT {k} BY {t}w* GET # GET {t}w*| SORT {k} BY {t}h*->f DESC GET {t}w* GET {t}h*->g STORE {k}
        2 SET {t}w{weighed} {value}| 2 HSET {t}h{weighed} f {score} g {value}
    """,
    "keys": """
        EXISTS {k:3}| TYPE {k}| EXPIRETIME {k}| TOUCH {k:2}| DEL {k}| UNLINK {k:2}| PERSIST {k}
        2 EXPIREAT {k} 33000000000| EXPIREAT {k} 33000000001 GT| EXPIREAT {k} 1| RENAME {k} {k}
        PEXPIREAT {k} 33000000000123 NX| RENAMENX {k} {k}| COPY {k} {k}| COPY {k} {k} REPLACE
    """,
    "hash": """
        HGET {k} {m}| HMGET {k} {m:3}| HGETALL {k}| HKEYS {k}| HVALS {k}| HLEN {k}| HSTRLEN {k} {m}
        HEXISTS {k} {m}| 5 HSET {k} {pair:30}| HMSET {k} {pair:3}| HSETNX {k} {m} {value}
        3 HDEL {k} {m:4}| HINCRBY {k} {m} 3| HINCRBY {k} {m} {value}| HINCRBYFLOAT {k} {m} 0.5
        HRANDFIELD {k} 100000 WITHVALUES| HRANDFIELD {k} 0| HSCAN {k} 0 COUNT 100000
        HSCAN {k} 0 COUNT 100000 MATCH m1*
    """,
    "set": """
        5 SADD {k} {m:30}| 3 SREM {k} {m:5}| SISMEMBER {k} {m}| SMISMEMBER {k} {m:3}| SMEMBERS {k}
        SCARD {k}| SPOP {k} 100000| SPOP {k} 0| SRANDMEMBER {k} 100000| SSCAN {k} 0 COUNT 100000
        2 SMOVE {k} {k} {m}| SINTER {k:3}| SUNION {k:3}| SDIFF {k:3}| SINTERCARD 2 {k} {k}
        SINTERCARD 2 {k} {k} LIMIT {n}| SINTERSTORE {k} {k:2}| SUNIONSTORE {k} {k:3}
        SDIFFSTORE {k} {k:2}| 2 SADD {k} {number:20}| SREM {k} {number:20}
    """,
    "list": """
        4 RPUSH {k} {m:30}| 4 LPUSH {k} {m:30}| LPUSHX {k} {m:3}| RPUSHX {k} {m:3}| 2 LPOP {k}
        2 RPOP {k}| LPOP {k} {n}| RPOP {k} {n}| LLEN {k}| LINDEX {k} {i}| 2 LRANGE {k} {i} {i}
        2 LSET {k} {i} {m}| LINSERT {k} BEFORE {m} {m}| LINSERT {k} after {m} {m}| LREM {k} {i} {m}
        LTRIM {k} {n} {i}| LTRIM {k} 0 {i}| LPOS {k} {m}| LPOS {k} {m} RANK -1
        LPOS {k} {m} RANK 2 MAXLEN {n}| LPOS {k} {m} COUNT {n} MAXLEN 30
        LMOVE {k} {k} {side} {side}| LPOS {k} {m} COUNT 0| RPOPLPUSH {k} {k}| LMPOP 2 {k} {k} {side}
        LREM {k} 0 {m}| LMPOP 2 {k} {k} {side} COUNT 3| BLMPOP 0.001 2 {k} {k} {side} COUNT 2
        BLPOP {k} {k} 0.001| BRPOP {k} 0.001| BLMOVE {k} {k} {side} {side} 0.001
        BRPOPLPUSH {k} {k} 0.001
    """,
    "zset": """
        8 ZADD {k} {scored:30}| 3 ZADD {k} {zadd} {scored:4}| ZADD {k} INCR {scored}
        ZINCRBY {k} {scored}| ZADD {k} {zadd} INCR {scored}| 2 ZREM {k} {m:3}| ZSCORE {k} {m}
        ZMSCORE {k} {m:3}| ZCARD {k}| ZRANK {k} {m}| ZREVRANK {k} {m}| ZRANK {k} {m} WITHSCORE
        ZRANGE {k} {i} {i}| ZRANGE {k} {i} {i} WITHSCORES| ZRANGE {k} {i} {i} REV WITHSCORES
        ZREVRANGE {k} {i} {i}| ZREVRANGE {k} {i} {i} WITHSCORES
        ZRANGEBYSCORE {k} {bound} {bound} WITHSCORES| ZREVRANGEBYSCORE {k} {bound} {bound}
        ZRANGEBYSCORE {k} {bound} {bound} LIMIT {n} {i}| ZRANGE {k} {bound} {bound} BYSCORE
        ZRANGE {k} {bound} {bound} BYSCORE REV LIMIT {n} {n}| ZCOUNT {k} {bound} {bound}
        ZPOPMIN {k}| ZPOPMAX {k}| ZPOPMIN {k} {n}| ZPOPMAX {k} {n}| ZREMRANGEBYRANK {k} {i} {i}
        ZREMRANGEBYSCORE {k} {bound} {bound}| ZUNION 2 {k} {k}
        ZUNION 2 {k} {k} WEIGHTS 2 -1 WITHSCORES| ZINTER 2 {k} {k} AGGREGATE {fold} WITHSCORES
        ZDIFF 2 {k} {k} WITHSCORES| ZUNIONSTORE {k} 2 {k} {k} AGGREGATE {fold}| ZINTERCARD 2 {k} {k}
        ZINTERSTORE {k} 2 {k} {k} WEIGHTS -2 0.5| ZDIFFSTORE {k} 2 {k} {k}
        ZRANGESTORE {k} {k} {i} {i}| ZRANGESTORE {k} {k} {bound} {bound} BYSCORE
        ZINTERCARD 2 {k} {k} LIMIT {n}| ZMPOP 2 {k} {k} {end}| ZMPOP 2 {k} {k} {end} COUNT {n}
        BZPOPMIN {k} {k} 0.001| BZPOPMAX {k} 0.001| BZMPOP 0.001 2 {k} {k} {end} COUNT 2
        ZSCAN {k} 0 COUNT 100000| ZRANDMEMBER {k} 100000 WITHSCORES| ZRANDMEMBER {k} 0
        4 ZADD {t}lex {even:20}| ZRANGEBYLEX {t}lex {lex} {lex}| ZREVRANGEBYLEX {t}lex {lex} {lex}
        ZLEXCOUNT {t}lex {lex} {lex}| ZRANGE {t}lex {lex} {lex} BYLEX LIMIT {n} {n}
        ZREMRANGEBYLEX {t}lex {lex} {lex}| ZRANGE {t}lex {lex} {lex} BYLEX REV
    """,
    "stream": """
        10 XADD {k} {new} {pair:3}| XADD {k} {trim} {new} {pair}| XADD {k} NOMKSTREAM {new} {pair}
        XADD {k} {id} {pair}| XLEN {k}| 2 XRANGE {k} {from} {from}| XRANGE {k} - + COUNT {n}
        XREVRANGE {k} {from} {from}| 2 XDEL {k} {id:3}| XTRIM {k} {trim}| XSETID {k} {id}
        XSETID {k} 900-9 ENTRIESADDED 950| XINFO STREAM {k}
        XREAD COUNT {n} STREAMS {k} {k} {id} {id}| XREAD STREAMS {k} {k} {id} $
        4 XGROUP CREATE {k} {g} {at}| XGROUP CREATE {k} {g} {at} MKSTREAM
        XGROUP CREATE {k} {g} {id} ENTRIESREAD {n}| XGROUP SETID {k} {g} {at}
        XGROUP DESTROY {k} {g}| XGROUP SETID {k} {g} {id} ENTRIESREAD {n}
        XGROUP CREATECONSUMER {k} {g} {c}| XGROUP DELCONSUMER {k} {g} {c}
        5 XREADGROUP GROUP {g} {c} COUNT {n} STREAMS {k} >| 2 XREADGROUP GROUP {g} {c} STREAMS {k} >
        XREADGROUP GROUP {g} {c} NOACK STREAMS {k} >
        XREADGROUP GROUP {g} {c} COUNT {n} STREAMS {k} {k} > {id}| 2 XACK {k} {g} {id:3}
        XREADGROUP GROUP {g} {c} STREAMS {k} {id}| XPENDING {k} {g}| XPENDING {k} {g} - + {n}
        XPENDING {k} {g} IDLE 100000 - + 9| XPENDING {k} {g} {from} {from} {n} {c}| XINFO GROUPS {k}
        XCLAIM {k} {g} {c} 0 {id:3}| XCLAIM {k} {g} {c} 0 {id:2} FORCE
        XCLAIM {k} {g} {c} 100000 {id}| XCLAIM {k} {g} {c} 0 {id:2} JUSTID
        XCLAIM {k} {g} {c} 0 {id} RETRYCOUNT 7 LASTID {id}
        XCLAIM {k} {g} {c} 0 {id} FORCE JUSTID IDLE 5| XAUTOCLAIM {k} {g} {c} 0 {id} COUNT 5
        XAUTOCLAIM {k} {g} {c} 0 - JUSTID| XINFO CONSUMERS {k} {g}| XINFO STREAM {k} FULL COUNT {n}
    """,
}


def table(texts):
    """The commands of each kind, as often as their numbers say."""
    found = {}
    for kind, text in texts.items():
        lines = [line.strip() for line in re.split(r"[|\n]", text) if line.strip()]
        counted = [re.fullmatch(r"(?:(\d+) )?(.+)", line).groups() for line in lines]
        found[kind] = [command for count, command in counted for _ in range(int(count or 1))]
    return found


COMMANDS = table(COMMANDS)
# What makes a value of a kind large, so that it has rows, which Doyen keeps one by one.
FILLER = {
    "string": ["SET {t}a " + "x" * 40_000],
    "keys": ["SET {t}a " + "x" * 40_000],
    "count": ["PFADD {t}count1 " + " ".join(f"n{n}" for n in range(4000))],
    "place": ["GEOADD {t}a " + " ".join(f"{n % 360 - 180} {n % 170 - 85} m{n}{'x' * 30}"
        for n in range(90))],
    "sort": ["RPUSH {t}a " + " ".join(str(n * 7919 % 2000) for n in range(700)), "SADD {t}b "
        + " ".join(str(n * 1000) for n in range(700))],
    "hash": ["HSET {t}a " + " ".join(f"m{n} {'v' * 40}{n}" for n in range(70))],
    "set": ["SADD {t}a " + " ".join(f"m{n}{'x' * 40}" for n in range(70)), "SADD {t}b "
        + " ".join(str(n * 1000) for n in range(700))],
    "list": ["RPUSH {t}a " + " ".join(f"m{n % 40}{'x' * (n % 50)}" for n in range(90))],
    "zset": ["ZADD {t}a " + " ".join(f"{n % 9} m{n}{'x' * 30}" for n in range(90)), "ZADD {t}lex "
        + " ".join(f"0 m{n}{'x' * 30}" for n in range(90))],
    "stream": [*[f"XADD {{t}}a {n}-1 m1 {'v' * 20}" for n in range(1, 40)],
        "XGROUP CREATE {t}a g 0"],
}
# Whatever these say of a key is compared at the end of a sequence.
STATE = {
    b"string": ["GET"], b"list": ["LRANGE 0 -1", "LLEN"], b"set": ["SMEMBERS", "SCARD"],
    b"zset": ["ZRANGE 0 -1 WITHSCORES", "ZREVRANGE 0 -1", "ZCARD"], b"hash": ["HGETALL", "HLEN"],
    b"stream": ["XRANGE - +", "XLEN", "XINFO STREAM FULL COUNT 0"],
}
# Mistakes that are found whatever the key holds, or with the key of their kind, which is there.
MISTAKES = {
    "hash": """
        HSET * a| HGET *| HINCRBY * f x| HINCRBY * word 1| HINCRBYFLOAT * f x| HRANDFIELD * x
        HMGET *| HSCAN * x| HSCAN * 0 COUNT 0| HSCAN * 0 FOO| HINCRBY * f 9223372036854775807
        HINCRBYFLOAT * word 1| HRANDFIELD * 1 FOO| HRANDFIELD * -9223372036854775808 WITHVALUES
        HINCRBY * f 9223372036854775808| HSETNX * a| HSCAN * 0 MATCH
    """,
    "set": """
        SADD *| SPOP * x| SPOP * -1| SPOP * 1 2| SRANDMEMBER * x| SRANDMEMBER * -9223372036854775808
        SINTERCARD 0 *| SINTERCARD x *| SINTERCARD 1 * LIMIT -1| SINTERCARD 1 * FOO 1
        SINTERCARD 3 *| SMOVE * x| SSCAN * x| SSCAN * 0 COUNT 0| SINTERCARD 1 * LIMIT| SINTERSTORE *
    """,
    "place": """
        GEOADD * 1| GEOADD * 181 1 m| GEOADD * 1 86 m| GEOADD * x 1 m| GEOADD * 1 1 m 2
        GEOADD * NX XX 1 1 m| GEODIST * m| GEODIST * m n o| GEODIST * m n km x
        GEORADIUS * 1 1 x km| GEORADIUS * 1 1 -1 km| GEORADIUS * 1 1 1 x| GEORADIUS * 1 1 1 km FOO
        GEORADIUS * 1 1 1 km COUNT 0| GEORADIUS * 1 1 1 km COUNT x| GEORADIUS * 1 1 1 km ANY
        GEORADIUS * 1 1 1 km STORE| GEORADIUS * 1 1 1 km STORE {t}to WITHDIST
        GEORADIUS_RO * 1 1 1 km STORE {t}to| GEORADIUSBYMEMBER * nosuch 1 km
        GEOSEARCH * FROMLONLAT 1 1 BYRADIUS 1 km BYBOX 1 1 km| GEOSEARCH * ASC ASC ASC ASC ASC
        GEOSEARCH * FROMLONLAT 1 1 ASC ASC ASC| GEOSEARCH * BYRADIUS 1 km ASC ASC
        GEOSEARCH * FROMMEMBER nosuch BYRADIUS 1 km| GEOSEARCH * FROMLONLAT 1 1 BYBOX -1 1 km
        GEOSEARCH * FROMLONLAT 1 1 BYBOX x 1 km| GEOSEARCH * FROMLONLAT 1 1 BYRADIUS 1 km STOREDIST
        GEOSEARCHSTORE {t}to * FROMLONLAT 1 1 BYRADIUS 1 km WITHDIST
    """,
    "count": """
        PFADD *| PFCOUNT *| PFMERGE *| PFMERGE {t}to *| PFCOUNT * {t}to
    """,
    "sort": """
        SORT *| SORT * LIMIT 1| SORT * LIMIT x 1| SORT * BY| SORT * GET| SORT * FOO| SORT * STORE
        SORT_RO * STORE {t}to| SORT * STORE {t}to
    """,
    "string": """
        BITOP FOO {t}to *| BITOP NOT {t}to * *| BITOP AND {t}to| LCS *| LCS * * LEN IDX
        LCS * * MINMATCHLEN| LCS * * MINMATCHLEN x| LCS * * FOO
    """,
    "list": """
        LPUSH *| LPOP * x| LPOP * -1| LPOP * 1 2| LINDEX * x| LINDEX *| LRANGE * a 1| LRANGE * 0
        LSET * 500 v| LSET * x v| LINSERT * NEAR a b| LINSERT * BEFORE a| LREM * x a| LTRIM * a 1
        LPOS *| LPOS * a RANK 0| LPOS * a RANK x| LPOS * a COUNT -1| LPOS * a MAXLEN -1
        LPOS * a FOO 1| LPOS * a RANK| LMOVE * * UP LEFT| LMOVE * * LEFT UP| LMPOP 0 * LEFT
        LMPOP 1 * UP| LMPOP 2 * LEFT| LMPOP 1 * LEFT COUNT 0| LMPOP 1 * LEFT FOO 1| LMPOP x * LEFT
        LMPOP 1 * LEFT COUNT 1 COUNT 2| BLPOP * x| BLPOP * -1| BLPOP *| BLMPOP x 1 * LEFT
        BLMPOP 0.01 1 * LEFT COUNT -1| BLMOVE * * LEFT RIGHT -1| BRPOPLPUSH * * x| BLPOP * 1e400
        LINDEX * 9223372036854775808| LRANGE * -9223372036854775808 9223372036854775807| RPOP * 1.5
    """,
    "zset": """
        ZADD *| ZADD * 1| ZADD * x m| ZADD * nan m| ZADD * NX XX 1 m| ZADD * GT LT 1 m
        ZADD * NX GT 1 m| ZADD * INCR 1 a 2 b| ZADD * NX| ZADD * 1 a 2| ZINCRBY * x m
        ZINCRBY * nan m| ZRANGE * a 1| ZRANGE * 0| ZRANGE * 0 1 FOO| ZRANGE * 0 1 LIMIT 0 1
        ZRANGE * 0 1 BYLEX| ZRANGE * (x 1 BYSCORE| ZRANGE * [a [b BYLEX WITHSCORES
        ZRANGE * 0 1 BYSCORE BYLEX| ZRANGEBYSCORE * x 1| ZRANGEBYSCORE * 1 (x
        ZRANGEBYSCORE * 0 1 LIMIT 0| ZRANGEBYSCORE * nan 1| ZRANGEBYSCORE * 0 1 LIMIT x 1
        ZRANGEBYLEX * a b| ZRANGEBYLEX * [a b| ZLEXCOUNT * a +| ZCOUNT * a 1
        ZREVRANGEBYSCORE * 1 0 FOO| ZREVRANGEBYLEX * + -x| ZREVRANGE * 0 x| ZREVRANGE * 0 1 REV
        ZPOPMIN * x| ZPOPMIN * -1| ZPOPMIN * 1 2| ZMPOP 1 * UP| ZMPOP 0 * MIN| ZMPOP 1 * MIN COUNT 0
        ZMPOP 2 * MIN| BZPOPMIN * x| BZPOPMIN * -1| BZMPOP -1 1 * MIN| ZUNION 0 *| ZUNION x *
        ZUNION 2 *| ZUNION 1 * WEIGHTS| ZUNION 1 * WEIGHTS x| ZUNION 1 * AGGREGATE avg
        ZUNION 1 * FOO| ZDIFF 1 * WEIGHTS 1| ZDIFFSTORE * 1 * WITHSCORES| ZINTERCARD 1 * LIMIT -1
        ZINTERCARD 0 *| ZINTERCARD 5 *| ZINTERCARD x *| ZUNIONSTORE * 0 *
        ZINTERSTORE * 1 * WITHSCORES| ZRANGESTORE * * 0 1 WITHSCORES| ZRANGESTORE * * a 1
        ZREMRANGEBYRANK * a 1| ZREMRANGEBYSCORE * x 1| ZREMRANGEBYLEX * x y| ZRANDMEMBER * x
        ZRANDMEMBER * 1 FOO| ZRANDMEMBER * -9223372036854775808 WITHSCORES
        ZRANDMEMBER * 1 WITHSCORES 2| ZSCAN * x| ZSCAN * 0 COUNT 0| ZRANK * a FOO| ZADD * inf m
        ZINCRBY * -inf inf| ZADD * INCR -inf inf| ZADD * XX GT LT 1 m| ZMSCORE *
        ZRANGE * 0 1 REV FOO
    """,
    "stream": """
        XADD *| XADD * 1-1| XADD * 0-0 a b| XADD * 99-99 a| XADD * x a b| XADD * 1-1 a b
        XADD * 1-x a b| XADD * MAXLEN 5| XADD * MAXLEN x 99-1 a b| XADD * MAXLEN -1 99-1 a b
        XADD * FOO 99-1 a b| XADD * MAXLEN 5 LIMIT 1 99-1 a b| XADD * MINID x 99-1 a b
        XADD * MAXLEN ~ 5 LIMIT x 99-1 a b| XADD * MAXLEN 5 MINID 5 99-1 a b| XTRIM *
        XTRIM * MAXLEN| XTRIM * FOO 1| XTRIM * MAXLEN = 1 LIMIT 5| XTRIM * MAXLEN -1
        XTRIM * MAXLEN ~ 1 LIMIT -1| XTRIM * MAXLEN 1 FOO| XLEN * x| XRANGE * a b
        XRANGE * - + COUNT| XRANGE * - + COUNT x| XRANGE * - + FOO 1| XRANGE * (- +| XRANGE * - (+
        XRANGE * -| XRANGE * (18446744073709551615-18446744073709551615 +| XREVRANGE * - (0-0
        XDEL *| XDEL * x| XREAD STREAMS *| XREAD FOO| XREAD COUNT x STREAMS * 0| XREAD STREAMS * x
        XREAD STREAMS * >| XREAD BLOCK x STREAMS * 0| XREAD BLOCK -1 STREAMS * 0| XREAD COUNT 1
        XREAD STREAMS * * 0| XREAD NOACK STREAMS * 0| XREADGROUP STREAMS * >
        XREADGROUP GROUP g c STREAMS * 0 0| XREADGROUP GROUP no c STREAMS * >
        XREADGROUP GROUP g c STREAMS * x| XREADGROUP GROUP g c STREAMS * $
        XREADGROUP GROUP g STREAMS * >| XGROUP FOO *| XGROUP CREATE * g| XGROUP CREATE * g 0
        XGROUP CREATE * h x| XGROUP CREATE * h 0 FOO| XGROUP CREATE * h 0 ENTRIESREAD x
        XGROUP CREATE * h 0 ENTRIESREAD -5| XGROUP SETID * no 0| XGROUP SETID * g x
        XGROUP DESTROY * no| XGROUP DESTROY *| XGROUP CREATECONSUMER * no c
        XGROUP CREATECONSUMER * g| XGROUP DELCONSUMER * no c| XACK * g| XACK * g x| XACK * no 1-1
        XPENDING *| XPENDING * no| XPENDING * g - +| XPENDING * g x + 1| XPENDING * g - + x
        XPENDING * g IDLE x - + 1| XPENDING * g IDLE 1| XPENDING * g - + 1 c d| XCLAIM * g c
        XCLAIM * g c x 1-1| XCLAIM * g c 0 x| XCLAIM * no c 0 1-1| XCLAIM * g c 0 1-1 FOO
        XCLAIM * g c 0 1-1 IDLE x| XCLAIM * g c 0 1-1 RETRYCOUNT -1| XCLAIM * g c 0 1-1 LASTID x
        XCLAIM * g c 0 1-1 TIME| XCLAIM * g c -1 9-9| XAUTOCLAIM * g c x 0| XAUTOCLAIM * g c 0 x
        XAUTOCLAIM * g c 0 0 COUNT 0| XAUTOCLAIM * no c 0 0| XAUTOCLAIM * g c 0 0 FOO
        XAUTOCLAIM * g c 0| XAUTOCLAIM * g c 0 0 COUNT x| XINFO| XINFO FOO *| XINFO STREAM * FOO
        XINFO STREAM * FULL COUNT| XINFO STREAM * FULL COUNT x| XINFO GROUPS no
        XINFO CONSUMERS * no| XINFO STREAM no| XINFO CONSUMERS *| XSETID *| XSETID * x| XSETID * 0-1
        XSETID * 99-1 ENTRIESADDED 1| XSETID * 99-1 ENTRIESADDED -1| XSETID * 99-1 ENTRIESADDED x
        XSETID * 99-1 MAXDELETEDID 100-1| XSETID * 99-1 FOO 1| XSETID no 1-1| XGROUP CREATE no g 0
    """,
}
MISTAKES = table(MISTAKES)
# What the mistakes find.
RIGHT = ["HSET {t}hash a 1 f 5 word x", "SADD {t}set 1 2 a", "RPUSH {t}list a b c",
    "ZADD {t}zset 1 a 2 b inf inf", "GEOADD {t}place 1 1 m", "SET {t}count text", "RPUSH {t}sort a b",
    "SET {t}string text", "XADD {t}stream 1-1 a b", "XADD {t}stream 2-0 a b",
    "XGROUP CREATE {t}stream g 0"]


class Draw:
    """Draws commands, and the words in them."""

    def __init__(self, rng, old, kind=None, large=False):
        self.rng, self.old, self.kind, self.large = rng, old, kind, large
        # The highest id of a stream so far.
        self.top = 1 + large * 39

    def command(self):
        while True:
            often = self.kind and self.rng.random() < 0.9
            kind = self.kind if often else self.rng.choice([*COMMANDS])
            line = self.rng.choice(COMMANDS[kind]).format_map(self)
            if not (self.old and SINCE_7_2.search(line)):
                return line

    def __getitem__(self, name):
        return Word(self, name)

    def word(self, name):
        rng, choice, some = self.rng, self.rng.choice, self.rng.randrange
        longest = [0] * 5 + ([30, 40, 40, 600] if self.large else [30])
        if name == "new":
            self.top += some(3)
            return choice([f"{self.top}-{some(4)}", f"{self.top}-*", str(self.top)])
        return {
            "t": lambda: "{t}",
            "k": lambda: choice(KEYS),
            "count": lambda: choice(COUNTS),
            "m": lambda: f"m{some(70 if self.large else 12)}{'x' * choice(longest)}",
            "pair": lambda: f"m{some(70 if self.large else 12)} {self.word('value')}",
            "value": lambda: choice(["1", "-7", "word", "''", "1.5", "9223372036854775807",
                "v" * choice(longest)]),
            "weighed": lambda: choice(WEIGHED),
            "bits": lambda: choice(["AND", "OR", "XOR"]),
            "place": lambda: f"{self.word('point')} {self.word('m')}",
            "point": lambda: f"{some(-1800, 1800) / 10} {some(-850, 850) / 10}",
            "geoadd": lambda: choice(["NX", "XX", "CH", "XX CH", "NX CH"]),
            "unit": lambda: choice(["m", "km", "ft", "mi"]),
            "radius": lambda: f"{choice([0, 1, 50, 3000, 99999])} {self.word('unit')}",
            "around": lambda: choice([f"FROMLONLAT {self.word('point')}",
                f"FROMMEMBER {self.word('m')}"]),
            "shape": lambda: choice([f"BYRADIUS {self.word('radius')}",
                f"BYBOX {some(9999)} {self.word('radius')}"]),
            "order": lambda: choice(["ASC", "DESC"]),
            "number": lambda: choice(["1", "-7", str(some(700) * 1000), "70000", "5000000000"]),
            "n": lambda: str(choice([0, 1, 2, 5, 50])),
            "i": lambda: str(some(-12, 50)) if some(9) else choice(["-500", "500", "-1", "0"]),
            "side": lambda: choice(["LEFT", "RIGHT", "left"]),
            "end": lambda: choice(["MIN", "MAX"]),
            "fold": lambda: choice(["MIN", "MAX", "SUM"]),
            "score": lambda: choice([str(some(-9, 9))] * 4 + [str(some(-40, 40) / 4), "inf", "-inf",
                "+5", "1e3"]),
            "scored": lambda: f"{self.word('score')} {self.word('m')}",
            "even": lambda: f"0 {self.word('m')}",
            "zadd": lambda: choice(["NX", "XX", "GT", "LT", "CH", "XX CH", "GT CH", "XX LT"]),
            "bound": lambda: choice(["-inf", "+inf", f"({some(-9, 9)}", str(some(-9, 9))]),
            "lex": lambda: choice(["-", "+", f"[m{some(70)}", f"(m{some(70)}"]),
            "g": lambda: choice("ggggggghhh"),
            "c": lambda: choice(["c1", "c2", "c3"]),
            "id": lambda: str(some(1, self.top + 2)) + choice(["", f"-{some(4)}"]),
            "at": lambda: choice(["0", "$", self.word("id")]),
            "from": lambda: choice(["-", "+", self.word("id"), "(" + self.word("id")]),
            "trim": lambda: choice([f"MAXLEN {some(60)}", f"MAXLEN = {some(60)}",
                f"MINID {self.word('id')}", f"MINID = {self.word('id')}"]),
        }[name]()


class Word:
    def __init__(self, draw, name):
        self.draw, self.name = draw, name

    def __format__(self, most):
        count = self.draw.rng.choice([1, 1, 2, int(most)]) if most else 1
        return " ".join(self.draw.word(self.name) for _ in range(count))


def sequence(rng, old):
    """A sequence of commands of one client, mostly on values of one kind, small or large."""
    kind, large = rng.choice([*COMMANDS]), rng.random() < 0.5
    draw, lines = Draw(rng, old, kind, large), list(FILLER[kind]) if large else []
    for _ in range(rng.choice([6, 12, 24])):
        how = rng.random()
        if how < 0.9:
            lines.append(draw.command())
        elif how < 0.94:
            lines += ["MULTI", *[draw.command() for _ in range(rng.choice([1, 4]))], "EXEC"]
        elif how < 0.97:
            call = rng.choice(["return redis.call(unpack(ARGV))",
                "return redis.pcall(unpack(ARGV))",
                "local r = redis.call(unpack(ARGV)) redis.call([[TYPE]], KEYS[1]) return r"])
            line = f"EVAL '{call}' 5 {{t}}lex {' '.join(KEYS)} {draw.command()}"
            lines += [line] if not (old and SINCE_7_2.search(line)) else []
        else:
            wrong = rng.choice([*MISTAKES])
            lines += [line for line in RIGHT if f"{{t}}{wrong} " in line]
            line = rng.choice(MISTAKES[wrong]).replace("*", f"{{t}}{wrong}")
            lines += [line] if not (old and SINCE_7_2.search(line)) else []
            lines.append(f"DEL {{t}}{wrong}")
    return lines


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
    draw = Draw(rng, True)
    for _ in range(count):
        for _ in range(rng.choice([0, 0, 1, 3])):
            yield rng.randrange(2), draw.command()
        for _ in range(rng.choice([0, 1, 1, 2])):
            yield 0, "WATCH " + " ".join(rng.sample(KEYS, rng.randint(1, 3)))
        # One change at most: a key that came and went again is changed for Redis, but not for
        # Doyen. None of groups of consumers alone, which is a change only for Doyen.
        meddles = [rng.choice(["before", "while", "never"])]
        meddle = draw.command()
        while OF_GROUPS.match(meddle):
            meddle = draw.command()
        if meddles == ["before"]:
            yield rng.randrange(2), meddle
        yield 0, rng.choice(["MULTI"] * 12 + ["UNWATCH", "EXEC", "DISCARD", "PING"])
        size = rng.choice([0, 1, 2, 3, 5, 8])
        for at in range(size):
            if meddles == ["while"] and at == size // 2:
                yield 1, meddle
            kind = rng.random()
            if kind < 0.8:
                yield 0, draw.command()
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
    parts = [w if isinstance(w, bytes) else w.encode() for w in args]
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

    def same_as(self, other, lines):
        """Asks both at once. Answers what differs, and the replies of this one."""
        end = ["ECHO", "the end of this sequence"]
        request = b"".join(encode(words(line)) for line in lines) + encode(end)
        last = encode(end[1:])[4:]
        for client in (self, other):
            client.socket.sendall(request)
        for client in (self, other):
            while not client.buffer.endswith(last):
                client.more()
        equal = self.buffer == other.buffer
        answers = [self.reply() for _ in lines]
        others = answers if equal else [other.reply() for _ in lines]
        self.buffer = other.buffer = b""
        return [(line, ra, rb) for line, ra, rb in zip(lines, answers, others)
            if not same(line, ra, rb)], answers

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


# The order of keys differs, and that of members and of the fields of a large hash.
UNORDERED = set("""KEYS HGETALL HKEYS HVALS HSCAN HRANDFIELD EXEC SMEMBERS SPOP SRANDMEMBER SSCAN
    SINTER SUNION SDIFF ZSCAN ZRANDMEMBER EVAL""".split())
# Times, and the sizes of a tree that Doyen does not have.
VARIES = [
    (rb"((?:idle|inactive|seen-time|active-time|radix-tree-\w+)\r\n):-?\d+", rb"\1:0"),
    # The score -0 is 0.
    (rb",-0\r\n|\$2\r\n-0\r\n", rb",0\r\n"), (rb"\$1\r\n0\r\n", rb",0\r\n"),
    (rb"(\*[34]\r\n\$\d+\r\n\d+-\d+\r\n(?:\$\d+\r\nc\d\r\n)?):\d+", rb"\1:0"),
]


def same(line, ra, rb):
    """Whether two replies to a line are the same, except for what may differ."""
    if ra == rb:
        return True
    name = line.split(" ", 1)[0].upper()
    # A second may end between the two replies.
    if name == "TTL" and abs(int(ra[1:]) - int(rb[1:])) <= 1:
        return True
    if name[0] == "Z" or name in ("XINFO", "XPENDING", "EXEC", "EVAL"):
        for pattern, text in VARIES:
            ra, rb = re.sub(pattern, text, ra), re.sub(pattern, text, rb)
    return ra == rb or name in UNORDERED and sorted(ra.split(b"\r\n")) == sorted(rb.split(b"\r\n"))


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
        if same(line, ra, rb):
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


def compare_sequences(redis, doyen, count, seed, old):
    """Compares the replies of random sequences, and then what all keys hold. Each begins without
    keys, so that any can be repeated alone. Also brings values from one to the other with DUMP."""
    pairs = [(Client(redis, protocol), Client(doyen, protocol)) for protocol in (2, 3)]
    keys = [*KEYS, "{t}lex", *COUNTS, *[f"{{t}}{kind}{n}" for kind in "wh" for n in WEIGHED]]
    differs, asked = collections.Counter(), 0
    for number in range(count):
        rng, (a, b) = random.Random(f"{seed}/{number}"), pairs[number % 2]
        lines = sequence(rng, old)
        whole = lines + [f"{name} {key}" for key in keys for name in ("EXPIRETIME", "TYPE")]
        different, answers = a.same_as(b, whole)
        asked += len(whole)
        if not different:
            types = {key: reply[1:-2] for key, reply in zip(keys, answers[1 - 2 * len(keys)::2])}
            if number % 8 == 0:
                for key in [key for key, kind in types.items() if kind not in (b"none", b"stream")]:
                    copy = f"{{t}}restored-{key[3:]}"
                    for one, other in ((a, b), (b, a)):
                        payload = one.ask(["DUMP", key]).split(b"\r\n", 1)[1][:-2]
                        answer = other.ask(["RESTORE", copy, "0", payload, "REPLACE"])
                        if answer != b"+OK\r\n":
                            different.append((f"RESTORE {copy}", b"", answer))
                    types[copy] = types[key]
            state = [with_key(word, key) for key, kind in types.items()
                for word in STATE.get(kind, []) if not (old and "FULL" in word)]
            different += a.same_as(b, state)[0]
        if different:
            line, ra, rb = different[0]
            differs[" ".join(line.split()[:1])] += 1
            if differs[" ".join(line.split()[:1])] <= 3:
                at = lines.index(line) if line in lines else len(lines)
                print(f"RESP{a.protocol} sequence {number}: {line[:300]}\n    redis {ra[:300]!r}\n"
                    f"    doyen {rb[:300]!r}\n    after "
                    + " | ".join(line[:160] for line in lines[max(0, at - 25):at]))
        for client in (a, b):
            client.ask(["DEL", *keys, *[f"{{t}}restored-{key[3:]}" for key in keys]])
    print(f"{count} sequences: {asked} commands, {sum(differs.values())} sequences differ, "
        f"by command: {dict(differs)}")
    return sum(differs.values())


def with_key(words, key):
    """Puts the key behind the name of a command, which has two words for XINFO."""
    words = words.split()
    at = 2 if words[0] == "XINFO" else 1
    return " ".join(words[:at] + [key] + words[at:])


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
    options = dict(zip(sys.argv, sys.argv[1:]))
    seed = int(options.get("--seed", random.randrange(1 << 32)))
    server = options.get("--server", "redis-server")
    print(f"seed of what is random: {seed}")
    with tempfile.TemporaryDirectory() as place:
        plain, cluster = free(), free()
        quiet = ["--save", "", "--dir", place, "--logfile", "redis.log", "--bind", "127.0.0.1"]
        started = [
            subprocess.Popen([server, "--port", str(plain), *quiet]),
            # Without a cluster port it would need the port 10,000 above its own.
            subprocess.Popen([server, "--port", str(cluster), "--cluster-enabled", "yes",
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
            info = Client(plain, 2).ask(["INFO", "server"])
            version = re.search(rb"redis_version:(\d+)\.(\d+)", info).groups()
            count = int(options.get("--sequences", SEQUENCES))
            differs = compare_sequences(plain, port["resp"], count, seed,
                [int(part) for part in version] < [7, 2])
            if "--server" in options:
                return 1 if differs else 0
            differs += sum(compare(redis, doyen, protocol, known, verbose, seed) for redis, doyen,
                known in pairs for protocol in (2, 3))
        finally:
            for process in started:
                process.terminate()
            for process in started:
                process.wait()
    return 1 if differs else 0


if __name__ == "__main__":
    sys.exit(main())
