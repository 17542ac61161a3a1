#!/usr/bin/env bash
# Runs the parts of Valkey's own test suite for commands that Doyen has, against a node.
#
#     valkey-suite.sh VALKEY-CHECKOUT DOYEN-BINARY [UNIT...]
#
# Needs tclsh. Starts a node with two data threads on free ports. Ends with status 1 if a test fails
# that is not listed below as known. Of unit/keyspace, only the tests before the first one of COPY
# with lists run: there the suite sets up lists outside of a test, fails, and gives the unit up.
set -u

if [ $# -lt 2 ]; then
    sed -n '2,9s/^# \{0,1\}//p' "$0"
    exit 2
fi
suite=$(realpath "$1")
binary=$(realpath "$2")
shift 2
units=("$@")
if [ ${#units[@]} -eq 0 ]; then
    units=(unit/type/string unit/type/incr unit/expire unit/keyspace unit/scan unit/protocol
        unit/info-command unit/info unit/slowlog unit/quit unit/multi)
fi

# Tests that are known to fail, as an extended regular expression of their names.
# Doyen does not have these commands.
known='^(SETBIT|GETBIT|SETRANGE|GETRANGE|LCS|COPY|RENAME|RENAMENX|MSETNX) '
known+='|^Coverage: SUBSTR|^MSET/MSETNX wrong number of args|^string to double with null terminator'
# It has no other types than strings.
known+='|^\{standalone\} (SSCAN|HSCAN|ZSCAN) '
known+='|^\{standalone\} SCAN regression test for issue #4906'
known+='|holding a list|^MGET against non-string key|^Extended SET GET with incorrect type'
known+='|^EXPIRE - write on expire should work'
known+='|^raw protocol response|^Regression for a crash with blocking ops'
known+='|^SLOWLOG - (Rewritten commands|commands with too many arguments|too long arguments)'
known+='|^SLOWLOG - get all slow logs'
known+='|^SLOWLOG - (blocking command|the commands in script)'
known+='|^(MULTI / EXEC basics|DISCARD|MULTI where commands alter argc/argv)$'
known+='|^(EXEC fail on WATCHed key modified by SORT|Blocking commands ignores the timeout)'
# It refuses these when they are queued, as commands that it does not know or not inside MULTI.
known+='|^MULTI with (SAVE|SHUTDOWN|config error)|^Flushall while watching several keys'
# No script of it runs for so long, and it has no setting for that.
known+='|^(MULTI|EXEC|MULTI-EXEC body|just EXEC) and script timeout'
# MULTI inside MULTI makes EXEC fail in Valkey 9, but not in Redis 7.
known+='|^Nested MULTI are not allowed'
# A setting for lists.
known+="|CONFIG SET - 'list-max-listpack-size'"

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
log=$(mktemp)
"$binary" run --log error --listen :0 --data :0 --resp "127.0.0.1:$port" --http off --threads 2 \
    >"$log" &
node=$!
trap 'kill $node; wait $node; rm -f "$log"' EXIT
until grep -q ^ready "$log"; do
    kill -0 $node || exit 1
    sleep 0.1
done

tags="-needs:debug -needs:repl -needs:save -needs:config-maxmemory -needs:reset -large-memory -external:skip"
chosen=()
for unit in "${units[@]}"; do chosen+=(--single "$unit"); done
cd "$suite" || exit 2
output=$(./runtest --host 127.0.0.1 --port "$port" --singledb --ignore-encoding --ignore-digest \
    --durable --timeout 300 --tags "$tags" "${chosen[@]}" 2>&1 | sed 's/\x1b\[[0-9;]*m//g')
failed=$(grep -a '^\[\(err\|exception\|TIMEOUT\)\]' <<<"$output" |
    sed 's/^\[[a-z]*\]: //; s/ in tests\/unit\/.*//' | sort -u)
new=$(grep -avE "$known" <<<"$failed")
echo "$(grep -ac '^\[ok\]' <<<"$output") tests passed," \
    "$(grep -aE "$known" <<<"$failed" | grep -c .) failed as expected," \
    "$(grep -c . <<<"$new") failed unexpectedly:"
echo "$new"
if ! grep -aq 'The End' <<<"$output"; then
    echo "the suite ended early; its last lines:"
    tail -5 <<<"$output"
    exit 1
fi
[ -z "$new" ]
