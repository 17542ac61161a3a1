#!/usr/bin/env bash
# Plays the image without docker: the program alone in an empty, read-only root, as the user of the
# Dockerfile, with its command and its health check. It must serve, be healthy, and leave in order.
#     node/packaging/docker/play.sh target/x86_64-unknown-linux-musl/dist/doyen
set -euo pipefail
program=$(realpath "$1")
dockerfile=$(dirname "$(realpath "$0")")/Dockerfile
if [ "$(id -u)" != 0 ] || ! unshare -m true; then
    echo "NOT CHECKED: the image, because only root may make namespaces and change roots here" >&2
    exit
fi
if [ -z "${PLAYED_INSIDE:-}" ]; then
    if command -v hadolint > /dev/null; then
        hadolint "$dockerfile"
    else
        echo "NOT CHECKED: the Dockerfile by hadolint, which is not installed" >&2
    fi
    exec env PLAYED_INSIDE=1 unshare -m "$0" "$program"
fi

fail() {
    echo "$1" >&2
    exit 1
}
# The words of an instruction in the form of a JSON list.
words() {
    sed -n "s/^$1.*\[\(.*\)\]$/\1/p" "$dockerfile" | tr -d '",'
}
user=$(sed -n 's/^USER //p' "$dockerfile")
read -ra entry <<< "$(words ENTRYPOINT) $(words CMD)"
read -ra health <<< "$(words HEALTHCHECK)"
[ "${entry[*]}" = "/doyen run" ] || fail "the Dockerfile runs ${entry[*]}"
[ "${health[*]}" = "/doyen status" ] || fail "its health check is ${health[*]}"
case $user in 0* | root* | "") fail "it runs as root" ;; esac
if readelf --program-headers "$program" | grep -w INTERP > /dev/null; then
    fail "$program is not static"
fi

root=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill -KILL "$pid" 2> /dev/null || true; umount "$root" || true; rmdir "$root"' EXIT
mount -t tmpfs none "$root"
mkdir "$root/secret"
cp "$program" "$root/doyen"
"$program" secret new --dir "$root/secret" > /dev/null
(umask 077 && echo a-long-random-password > "$root/secret/password")
chown -R "$user" "$root/secret"
mount -o remount,ro "$root"

# As `docker run --read-only -e NAME=VALUE ...`. Nothing else is in the environment.
within=(env -i DOYEN_SECRET_FILE=/secret/member DOYEN_RESP=0.0.0.0:0 DOYEN_RESP_CLUSTER=off
    DOYEN_LISTEN=127.0.0.1:0 DOYEN_DATA=127.0.0.1:0 DOYEN_RESP_PASSWORD_FILE=/secret/password
    DOYEN_MEMORY_MAX=256mb DOYEN_NAME=n1)
into=("$(command -v chroot)" --userspec="$user" "$root")
# A pipe: the node prints one line, with the ports that it listens on.
coproc NODE { exec "${within[@]}" DOYEN_HTTP=0.0.0.0:0 "${into[@]}" "${entry[@]}"; }
pid=$NODE_PID
read -r -t 60 ready <&"${NODE[0]}" || fail "it did not start"
at() {
    echo "$ready" | grep -o " $1=[^ ]*" | grep -o '[0-9]*$'
}

is_healthy() {
    "${within[@]}" DOYEN_HTTP="$1" "${into[@]}" "${health[@]}" > /dev/null
}
# What the same variable gives the health check: the address on which the node listens.
http=0.0.0.0:$(at http)
healthy=
for _ in $(seq 300); do
    if is_healthy "$http" 2> /dev/null; then
        healthy=yes
        break
    fi
    sleep 0.1
done
[ -n "$healthy" ] || fail "it never became healthy: $(is_healthy "$http" 2>&1)"

exec 3<> "/dev/tcp/127.0.0.1/$(at resp)"
printf 'AUTH a-long-random-password\r\nSET greeting hello\r\nGET greeting\r\n' >&3
answers=$(head -n 4 <&3 | tr -d '\r' | tr '\n' ' ')
[ "$answers" = "+OK +OK \$5 hello " ] || fail "it answered $answers"
exec 3>&-

runs_as=$(awk '/^Uid:/ { u = $3 } /^Gid:/ { g = $3 } END { print u ":" g }' "/proc/$pid/status")
[ "$runs_as" = "$user" ] || fail "it runs as $runs_as"
kill -TERM "$pid"
wait "$pid" || fail "it left with status $?"
pid=
if is_healthy "$http" 2> /dev/null; then
    fail "the health check finds a node that is not there"
fi
echo "the image serves, is healthy and leaves, as $user in a read-only root:" \
    "$(stat -c %s "$program") bytes"
