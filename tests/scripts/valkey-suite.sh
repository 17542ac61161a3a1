#!/usr/bin/env bash
# Runs the parts of Valkey's own test suite for commands that Doyen has, against a node.
#
#     valkey-suite.sh VALKEY-CHECKOUT DOYEN-BINARY [UNIT...]
#
# Needs tclsh. Starts a node with two data threads on free ports; for scripts, with one partition.
# Shows by unit how many tests passed and failed.
# Ends with status 1 if a test fails that is not listed below as known. Runs a copy of the suite in
# which settings of Redis's layouts (`list-max-listpack-size`), which are nothing here, are answered
# in place, and in which scripts are only tried as EVAL and as `redis.call`.
set -u

if [ $# -lt 2 ]; then
    sed -n '2,10s/^# \{0,1\}//p' "$0"
    exit 2
fi
suite=$(mktemp -d)
trap 'rm -r "$suite"' EXIT
cp -r "$1/tests" "$1/runtest" "$suite"
binary=$(realpath "$2")
shift 2
units=("$@")
if [ ${#units[@]} -eq 0 ]; then
    units=(unit/type/string unit/type/incr unit/type/hash unit/type/set unit/type/zset
        unit/type/list unit/type/list-2 unit/type/list-3 unit/type/stream unit/type/stream-cgroups
        unit/expire unit/keyspace unit/scan unit/dump unit/bitops unit/bitfield unit/protocol
        unit/geo unit/hyperloglog unit/sort
        unit/info-command unit/info unit/slowlog unit/quit unit/multi unit/scripting unit/pubsub
        unit/pubsubshard unit/tracking unit/pause unit/other unit/introspection
        unit/introspection-2)
fi

# Tests that are known to fail, as an extended regular expression of their names. docs/redis.md says
# why, except for what only newer servers have.
# Commands that are missing.
known='^BITPOS/BITCOUNT fuzzy testing using SETBIT'
known+='|is_eval: 0$|^EVAL - Scripts do not block on waitaof'
known+='|stats for scripts$|^COMMAND GETKEYSANDFLAGS'
known+='|^MIGRATE command is marked|access time of a key$'
known+='|^Test RO scripts are not blocked by pause RO'
# Registers are not shown (PFDEBUG), a count is not stored by a read, and sizes are not set.
known+='|hll-sparse-max-bytes|^HyperLogLog (self test|sparse encoding stress)|^HyperLogLogs are promote'
known+='|^PFADD / PFCOUNT cache invalidation|^PFDEBUG GETREG'
# Nothing is counted as dirty, because nothing is saved.
known+='|^BLPOP/BLMOVE should increase dirty|^SETBIT/BITFIELD only increase dirty'
# Settings that it does not have. No script runs for so long, and none can be killed.
known+='|and script timeout$|^Timedout (read-only )?script|^not enough good replicas'
known+='|^(Consistent eval error reporting|reject script do not cause a Lua stack leak)'
known+='|^CONFIG SET (with multiple args|rollback|duplicate|set immutable)'
known+='|^CONFIG GET (hidden configs|multiple args)'
# A monitor sees the commands of several threads in any order (docs/redis.md).
known+='|^MONITOR log blocked command only once'
# PUBLISH in a script counts threads with subscribers of any channel, and other units leave some.
known+='|^Test may-replicate commands are rejected'
# Sizes of a buffer of Redis.
known+='|^CLIENT (LIST|INFO)$'
# Clients have nothing to forget if nothing was flushed.
known+='|^Test ASYNC flushall'
# What cannot be queued, or is refused when it is queued.
known+='|^MULTI with (SAVE|SHUTDOWN|config error)|^Flushall while watching several keys'
known+='|^unsubscribe inside multi, and publish to self'
# Limits of a script, of a pattern, and of the commands that a script can call.
known+='|^Measures elapsed time os.clock|^EVAL - cmsgpack pack/unpack smoke test'
known+='|^Regression for pattern matching very long|^EVAL - Scripts do not block on wait$'
known+='|^Try trick global protection 2|^SLOWLOG - the commands in script are recorded'
# A hash whose fields are long has rows, which have another order.
known+='|^Hash ziplist of various encodings'
# Arguments are checked before the key, and numbers are decimal.
known+='|^RESTORE returns an error of the key already exists|^BLPOP: timeout value out of range'
# While a consumer finds nothing, its times are kept to the second.
known+='|^Consumer seen-time and active-time'
# Streams are trimmed by the hundred, or by all, and not by nodes of a tree.
known+='|^XTRIM with (MAXLEN option basic test|LIMIT delete entries)|^XADD with LIMIT consecutive'
# Newer servers have these, or say them otherwise.
known+='|^Nested MULTI are not allowed|^XREAD last element|^BITCOUNT with just start|^SCRIPT SHOW'
known+='|ZSCAN with (NOSCORES|encoding)|^UNSUBSCRIBE and PUNSUBSCRIBE from non-subscribed'
known+='|^EVAL - redis.call variant raises a Lua error on Redis cmd error|^Script ACL check'
known+='|^Scripts can handle commands with incorrect|^LUA test pcall with non string/integer arg'

# Tests that would wait for ever, or leave a connection behind that spoils later ones.
skipped=(
    # Clients that are woken together take in any order (docs/redis.md, pops that wait).
    "/^B[LZ]MPOP with multiple blocked clients"
    # A pop that comes before a woken client takes is faster (docs/redis.md, pops that wait).
    "Unblock fairness is kept while pipelining"
    # INFO has no total_blocking_keys, which servers have since 7.2.
    "Blocking XREADGROUP for stream key that has clients blocked on list"
    # The slow log has a pop when it begins to wait, and SLOWLOG is no part of a transaction.
    "SLOWLOG - blocking command is reported only after unblocked"
    "SLOWLOG - Rewritten commands are logged as their original command"
    # Tracked are all keys of a script, in a table whose size is no setting.
    "Tracking only occurs for scripts when a command calls a read-only command"
    "Tracking gets notification on tracking table key eviction"
    "/^Server is able to evacuate enough keys"
    # FLUSHDB is no part of a transaction, and the limit of memory no setting.
    "/^flushdb tracking invalidation message is not interleaved"
    "Tracking invalidation message of eviction keys should be before response"
    # What CLIENT PAUSE and CONFIG do is no transaction.
    "Test special commands are paused by RO" "command stats for MULTI"
    "/client pause( starts|$)"
    # What a script calls is not shown.
    "/^MONITOR can log commands issued by"
    # A consumer that is new is no message.
    "Keyspace notifications: stream events test"
    # The reply of a script has 128 nested tables at most, and `unpack` answers 7,997 values.
    "Script return recursive object" "Script check unpack with massive arguments"
)

settings='^((hash|list|set|zset)-max-(ziplist|listpack|intset)-(size|entries|value)'
settings+='|list-compress-depth|stream-node-max-(entries|bytes)|sanitize-dump-payload'
settings+='|lazyfree-.*|proto-max-bulk-len|client-query-buffer-limit|rdb-key-save-delay'
settings+='|tracking-table-max-keys)$'
python3 - "$suite/tests/support" "$settings" <<'PYTHON'
import pathlib, sys
place, settings = pathlib.Path(sys.argv[1]), sys.argv[2]
# Valkey 7.2 still has the names of Redis.
name = "valkey" if (place / "valkey.tcl").exists() else "redis"
path = place / f"{name}.tcl"
text = path.read_text()
dispatch = f"proc ::{name}::__dispatch__raw__ {{id method argv}} {{\n"
assert dispatch in text, "the suite sends commands in another way"
path.write_text(text.replace(dispatch, dispatch + """
    set setting [string tolower [lindex $argv 1]]
    if {$::NAME::blocking($id) && !$::NAME::deferred($id)
        && [string equal -nocase $method config] && [regexp {%s} $setting]} {
        if {[string equal -nocase [lindex $argv 0] get]} {
            if {![info exists ::layouts($setting)]} {
                set ::layouts($setting) 128
            }
            return [list $setting $::layouts($setting)]
        }
        set ::layouts($setting) [lindex $argv 2]
        return OK
    }
""".replace("NAME", name) % settings))
PYTHON
sed -i 's/foreach is_eval {0 1}/foreach is_eval {1}/; s/{server redis}/{redis}/' \
    "$suite/tests/unit/scripting.tcl"

# The suite and its clients meet at a port that must be free.
base=$(python3 -c 'import random; print(random.randrange(20000, 30000))')

free='import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])'

# Runs units against a node of its own, which is started with these options.
run() {
    local options=$1 port log node
    shift
    [ $# -gt 0 ] || return
    port=$(python3 -c "$free")
    log=$(mktemp)
    # shellcheck disable=SC2086
    "$binary" run --log error --listen :0 --data :0 --resp "127.0.0.1:$port" --resp-cluster :0 \
        --http off $options >"$log" &
    node=$!
    until grep -q ^ready "$log"; do
        kill -0 $node || exit 1
        sleep 0.1
    done
    local chosen=()
    for unit in "$@"; do chosen+=(--single "$unit"); done
    for test in "${skipped[@]}"; do chosen+=(--skiptest "$test"); done
    (cd "$suite" && ./runtest --host 127.0.0.1 --port "$port" --baseport "$base" --singledb \
        --ignore-encoding --ignore-digest --durable --timeout 120 --tags "$tags" \
        "${chosen[@]}" 2>&1) |
        sed -u 's/\x1b\[[0-9;]*m//g' | tr -d '\0'
    kill $node
    wait $node
    rm "$log"
}

tags="-needs:debug -needs:repl -needs:save -needs:config-maxmemory -needs:reset -large-memory"
tags+=" -external:skip"
of_one_partition=() of_one_thread=() others=()
for unit in "${units[@]}"; do
    case $unit in
        unit/scripting | unit/sort) of_one_partition+=("$unit") ;;
        # With one thread, clients hear of a change just before a read before they read.
        unit/tracking) of_one_thread+=("$unit") ;;
        *) others+=("$unit") ;;
    esac
done
output=$(run "--threads 2" "${others[@]}"; run "--partitions 1" "${of_one_partition[@]}"
    run "--threads 1" "${of_one_thread[@]}")
# All that the suite says, for those who look for the reason of a failure.
[ -z "${SUITE_OUTPUT:-}" ] || cat <<<"$output" >"$SUITE_OUTPUT"
awk '/^Testing / { unit = $2; units[++count] = unit }
    /^\[ok\]/ { passed[unit]++ }
    /^\[(err|exception|TIMEOUT)\]/ { failed[unit]++ }
    END {
        for (i = 1; i <= count; i++)
            printf "%s: %d passed, %d failed\n", units[i], passed[units[i]], failed[units[i]]
    }' <<<"$output"
failed=$(grep -a '^\[\(err\|exception\|TIMEOUT\)\]' <<<"$output" |
    sed 's/^\[[a-zA-Z]*\]: //; s/ in tests\/unit\/.*//' | sort -u)
new=$(grep -avE "$known" <<<"$failed")
echo "$(grep -ac '^\[ok\]' <<<"$output") tests passed," \
    "$(grep -aE "$known" <<<"$failed" | grep -c .) failed as expected," \
    "${#skipped[@]} were skipped," \
    "$(grep -c . <<<"$new") failed unexpectedly:"
echo "$new"
expected=$(((${#others[@]} > 0) + (${#of_one_partition[@]} > 0) + (${#of_one_thread[@]} > 0)))
if [ "$(grep -ac 'The End' <<<"$output")" -ne "$expected" ]; then
    echo "the suite ended early; its last lines:"
    tail -5 <<<"$output"
    exit 1
fi
[ -z "$new" ]
