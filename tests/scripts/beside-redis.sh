#!/usr/bin/env bash
# Doyen beside Redis Cluster on one machine: three members with one backup each, against three masters with one replica each.
# Members are pinned to one core and redis-benchmark to another, so that wake-ups across cores do not decide the comparison.
# Runs alternate, so that a machine whose speed drifts is fair to both; the table shows medians and their ratio.
#
# usage: beside-redis.sh DOYEN_BINARY [ROUNDS]      needs redis-server, redis-cli, redis-benchmark, taskset
# environment: SECONDS_A_RUN (3), CLIENTS ("50 512"), PIPELINES ("1 16"), MEMBER_CORE (0), CLIENT_CORE (1)
set -euo pipefail

doyen=$(realpath "${1:?usage: beside-redis.sh DOYEN_BINARY [ROUNDS]}")
rounds=${2:-3}
seconds=${SECONDS_A_RUN:-3}
member_core=${MEMBER_CORE:-0}
client_core=${CLIENT_CORE:-1}
for tool in redis-server redis-cli redis-benchmark taskset; do
  command -v "$tool" >/dev/null || { echo "beside-redis: $tool is missing: install redis and util-linux" >&2; exit 2; }
done

dir=$(mktemp -d)
pids=()
finish() {
  # The shell would report each of them; their end is no news.
  { for pid in "${pids[@]}"; do kill -KILL "$pid" || true; done; wait; } 2>/dev/null
  rm -rf "$dir"
}
trap finish EXIT

free_ports() { # as many free TCP ports as asked for, below those whose bus port (+10000) would not exist
  local found=() port
  while [ ${#found[@]} -lt "$1" ]; do
    port=$((20000 + RANDOM % 12000))
    if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && [[ " ${found[*]} " != *" $port "* ]]; then found+=("$port"); fi
  done
  echo "${found[@]}"
}

# --- Redis Cluster
read -ra redis_ports <<<"$(free_ports 6)"
for port in "${redis_ports[@]}"; do
  mkdir -p "$dir/$port"
  taskset -c "$member_core" redis-server --port "$port" --cluster-enabled yes --dir "$dir/$port" --save "" --appendonly no --bind 127.0.0.1 >"$dir/$port/log" 2>&1 &
  pids+=($!)
done
for port in "${redis_ports[@]}"; do until redis-cli -p "$port" ping >/dev/null 2>&1; do sleep 0.1; done; done
redis-cli --cluster create "${redis_ports[@]/#/127.0.0.1:}" --cluster-replicas 1 --cluster-yes >/dev/null
for port in "${redis_ports[@]}"; do
  until redis-cli -p "$port" cluster info | grep -q cluster_state:ok &&
    redis-cli -p "$port" info replication | tr -d '\r' | grep -qE 'state=online|master_link_status:up'; do sleep 0.2; done
done

# --- Doyen
head -c 32 /dev/urandom | base64 >"$dir/secret"
chmod 600 "$dir/secret"
seed=()
members=()
for i in 1 2 3; do
  taskset -c "$member_core" "$doyen" run --name "n$i" --listen 127.0.0.1:0 --data 127.0.0.1:0 --resp 127.0.0.1:0 --resp-cluster 127.0.0.1:0 \
    --http 127.0.0.1:0 --secret-file "$dir/secret" --members-min 3 "${seed[@]}" >"$dir/n$i.out" 2>"$dir/n$i.err" &
  pids+=($!)
  members+=($!)
  until grep -q '^ready' "$dir/n$i.out"; do kill -0 "${members[-1]}" || { cat "$dir/n$i.err" >&2; exit 1; }; sleep 0.05; done
  [ "$i" -gt 1 ] || seed=(--seed "$(sed -n 's/^ready.* listen=\([^ ]*\).*/\1/p' "$dir/n1.out")")
done
port_of() { sed -n "s/^ready.* $2=[^ ]*:\([0-9]*\).*/\1/p" "$dir/n$1.out"; }
doyen_cluster=$(port_of 1 resp-cluster)
doyen_plain=$(port_of 1 resp)
until redis-cli -p "$doyen_plain" set probe 1 2>/dev/null | grep -q OK && [ "$(redis-cli -p "$doyen_cluster" cluster info | tr -d '\r' | sed -n 's/cluster_known_nodes://p')" = 3 ]; do sleep 0.2; done

cpu() { # user and system microseconds of the processes named
  local total=0 fields
  for pid in "$@"; do
    read -ra fields <"/proc/$pid/stat"
    total=$((total + fields[13] + fields[14]))
  done
  echo $((total * 1000000 / $(getconf CLK_TCK)))
}
measure() { # port clients pipeline test cluster-flag -> "requests_per_second"
  local port=$1 clients=$2 pipeline=$3 test=$4 flag=$5 guess out
  guess=$(taskset -c "$client_core" redis-benchmark -p "$port" $flag -t "$test" -c "$clients" -P "$pipeline" -d 100 -r 100000 -n 50000 --csv 2>/dev/null | awk -F'","|"' 'END{print int($3)}')
  out=$(timeout 60 taskset -c "$client_core" redis-benchmark -p "$port" $flag -t "$test" -c "$clients" -P "$pipeline" -d 100 -r 100000 -n $((guess * seconds + 1000)) --csv 2>/dev/null | awk -F'","|"' 'END{print int($3)}') || out=0
  echo "${out:-0}"
}
median() { sort -n | awk '{v[NR]=$1} END{print v[int((NR+1)/2)]}'; }

printf 'Doyen (synchronous backup) beside Redis Cluster %s (asynchronous replicas), 100-byte values, thousands a second, medians of %s\n\n' \
  "$(redis-server --version | sed 's/.*v=\([^ ]*\).*/\1/')" "$rounds"
printf '| test | clients | pipeline | Doyen | Redis Cluster | ratio | Doyen, CPU us an op | Redis, CPU us an op |\n|---|---|---|---|---|---|---|---|\n'
for pipeline in ${PIPELINES:-1 16}; do
  for clients in ${CLIENTS:-50 512}; do
    for test in set get; do
      : >"$dir/d"; : >"$dir/r"; : >"$dir/dc"; : >"$dir/rc"
      for _ in $(seq "$rounds"); do
        before=$(cpu "${members[@]}")
        rate=$(measure "$doyen_cluster" "$clients" "$pipeline" "$test" --cluster)
        echo "$rate" >>"$dir/d"
        awk -v used=$(($(cpu "${members[@]}") - before)) -v n=$((rate * seconds + 51000)) 'BEGIN{printf "%.2f\n", used / n}' >>"$dir/dc"
        before=$(cpu "${pids[@]:0:6}")
        rate=$(measure "${redis_ports[0]}" "$clients" "$pipeline" "$test" --cluster)
        echo "$rate" >>"$dir/r"
        awk -v used=$(($(cpu "${pids[@]:0:6}") - before)) -v n=$((rate * seconds + 51000)) 'BEGIN{printf "%.2f\n", used / n}' >>"$dir/rc"
      done
      d=$(median <"$dir/d"); r=$(median <"$dir/r")
      awk -v t="$test" -v c="$clients" -v p="$pipeline" -v d="$d" -v r="$r" -v dc="$(median <"$dir/dc")" -v rc="$(median <"$dir/rc")" \
        'BEGIN{printf "| %s | %s | %s | %.0f | %.0f | %.2f | %s | %s |\n", toupper(t), c, p, d/1000, r/1000, r ? d/r : 0, dc, rc}'
    done
  done
done
