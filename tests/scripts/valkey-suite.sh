#!/usr/bin/env bash
# Runs the parts of Valkey's own test suite that concern what Doyen has, against a node.
#
#     valkey-suite.sh VALKEY-CHECKOUT DOYEN-BINARY [UNIT...]
#
# Needs tclsh. Starts a node with two data threads on ports of its own. Ends with status 1 if a test fails that is not listed below,
# with why it does. Of unit/keyspace only the part in front of the first test of COPY with lists runs: the suite then sets up lists
# outside of a test, and gives the unit up.
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
    units=(unit/type/string unit/type/incr unit/expire unit/keyspace unit/scan unit/protocol unit/info-command unit/info unit/slowlog unit/quit)
fi

# What fails, as an extended regular expression of the test's name.
known='^(SETBIT|GETBIT|SETRANGE|GETRANGE|LCS|COPY|RENAME|RENAMENX|MSETNX) ' # these commands are not there
known+='|^Coverage: SUBSTR|^MSET/MSETNX wrong number of args|^string to double with null terminator'
known+='|^\{standalone\} (SSCAN|HSCAN|ZSCAN) |^\{standalone\} SCAN regression test for issue #4906' # nor are other types than strings
known+='|holding a list|^MGET against non-string key|^Extended SET GET with incorrect type|^EXPIRE - write on expire should work'
known+='|^raw protocol response|^Regression for a crash with blocking ops'
known+='|^SLOWLOG - (Rewritten commands|commands with too many arguments|too long arguments|get all slow logs)'
known+='|^SLOWLOG - (blocking command|the commands in script)'
known+='|^test argument rewriting' # there are no transactions
known+="|CONFIG SET - 'list-max-listpack-size'" # see above

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
log=$(mktemp)
"$binary" run --log error --listen :0 --data :0 --resp "127.0.0.1:$port" --http off --threads 2 >"$log" &
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
output=$(./runtest --host 127.0.0.1 --port "$port" --singledb --ignore-encoding --ignore-digest --durable --timeout 300 \
    --tags "$tags" "${chosen[@]}" 2>&1 | sed 's/\x1b\[[0-9;]*m//g')
failed=$(grep -a '^\[\(err\|exception\|TIMEOUT\)\]' <<<"$output" | sed 's/^\[[a-z]*\]: //; s/ in tests\/unit\/.*//' | sort -u)
new=$(grep -avE "$known" <<<"$failed")
echo "$(grep -ac '^\[ok\]' <<<"$output") tests passed, $(grep -aE "$known" <<<"$failed" | grep -c .) failed that are known to, $(grep -c . <<<"$new") failed that should not:"
echo "$new"
if ! grep -aq 'The End' <<<"$output"; then
    echo "the suite did not come to its end:"
    tail -5 <<<"$output"
    exit 1
fi
[ -z "$new" ]
