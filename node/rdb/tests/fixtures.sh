#!/bin/sh
# Writes the files of tests/rdb with the redis-server of this machine: one of each encoding that it
# has, and the payloads of DUMP. `tests/redis.rs` says what they hold.
set -eu
cd "$(dirname "$0")/rdb"
version=$(redis-server --version | sed 's/.* v=\([0-9]*\.[0-9]*\).*/\1/')
to="$PWD/redis-$version"
mkdir -p "$to"
work=$(mktemp -d)
socket="$work/socket"
redis-server --port 0 --unixsocket "$socket" --dir "$work" --save '' --daemonize yes >"$work/log"
trap 'redis-cli -s "$socket" shutdown nosave; rm -r "$work"' EXIT
ask() { redis-cli -s "$socket" "$@" >"$work/said"; }
until redis-cli -s "$socket" ping >"$work/said" 2>&1; do :; done

ask SET string hello
ask SET integer -1234567
ask SET small 7
ask SET compressed "$(printf '%0200d' 0)"
ask SET later x PXAT 4102444800123
ask RPUSH list-short a -5 "$(printf '%0100d' 1)" 70000 9223372036854775807
ask RPUSH list-long $(seq 1 300)
ask CONFIG SET list-max-listpack-size 3
ask RPUSH list-plain "$(printf '%09000d' 2)" tail
ask SADD set-intset 1 -2 70000
ask SADD set-table a b 3
ask HSET hash-listpack f v g 12
ask HSET hash-table f "$(printf '%0100d' 3)"
ask ZADD zset-listpack 1 a -2.5 b inf c
ask ZADD zset-table 0.1 "$(printf '%0100d' 4)"
ask XADD stream 1-1 f v
ask XADD stream 1-2 f w
ask XADD stream 2-0 g 1 f "$(printf '%016378d' 5)"
ask XADD stream 2-5 f x
ask XADD stream 1844674407370955161-7 f y
ask XDEL stream 1-2 1844674407370955161-7
ask XGROUP CREATE stream group 0
ask XGROUP CREATE stream late '$' ENTRIESREAD 4
ask XGROUP CREATECONSUMER stream late idle
ask XREADGROUP GROUP group me COUNT 2 STREAMS stream '>'
ask XCLAIM stream group you 0 2-0 TIME 1234567890123 RETRYCOUNT 9
ask XDEL stream 1-1
for key in string compressed list-short list-plain set-intset set-table hash-listpack hash-table \
    zset-listpack zset-table stream; do
    redis-cli -s "$socket" DUMP $key | head -c -1 >"$to/$key.dump"
done
ask FUNCTION LOAD '#!lua name=mine
redis.register_function("f", function() return 1 end)'
ask -n 3 SET string other
ask SAVE
mv "$work/dump.rdb" "$to/all.rdb"
