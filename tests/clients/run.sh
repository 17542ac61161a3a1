#!/bin/sh
# Tries the clients of other languages against two real nodes: over TLS, as a user with rules, on
# both ports. It needs python3, go, node with npm, mvn with a JDK 17, and redis-cli.
# run.sh DOYEN
set -eu
doyen=$(realpath "$1")
cd "$(dirname "$0")"
build=../../target/clients
mkdir -p "$build"
build=$(realpath "$build")
work=$(mktemp -d)
pids=
end() {
    # shellcheck disable=SC2086 # several process ids
    [ -z "$pids" ] || kill $pids 2>/dev/null || true
    wait
    rm -rf "$work"
}
trap end EXIT INT TERM

[ -d "$build/python" ] || python3 -m venv "$build/python"
"$build/python/bin/pip" install --quiet redis
cp node/package.json node/try.js "$build/"
(cd "$build" && npm install --silent --no-audit --no-fund)
cp go/go.mod go/main.go "$build/"
(cd "$build" && go mod tidy >/dev/null 2>&1 && go build -o go-client .)
cp -r java "$build/"
(cd "$build/java" && mvn --quiet compile dependency:build-classpath -Dmdep.outputFile=classpath)

umask 077
"$doyen" secret new --dir "$work/secret" >/dev/null
printf 'admin-password-1' >"$work/password"
start() {
    name=$1
    shift
    "$doyen" run --name "$name" --secret-file "$work/secret/member" --listen 127.0.0.1:0 \
        --data 127.0.0.1:0 --http 127.0.0.1:0 --resp 127.0.0.1:0 --resp-cluster 127.0.0.1:0 \
        --resp-tls --resp-password-file "$work/password" "$@" >"$work/$name" 2>&1 &
    pids="$pids $!"
    until grep -q '^ready ' "$work/$name"; do
        kill -0 $! || { cat "$work/$name"; exit 1; }
        sleep 0.1
    done
}
port() {
    sed -n "s/^ready .* $2=[^ ]*:\([0-9]*\) .*/\1/p" "$work/$1"
}
start n1 --expect 1
start n2 --seed "127.0.0.1:$(port n1 listen)"
plain=$(port n2 resp)
aware=$(port n2 resp-cluster)
ca=$work/secret/ca.pem

redis() {
    redis-cli --tls --cacert "$ca" -h localhost -p "$plain" "$@"
}
REDISCLI_AUTH=admin-password-1 redis acl setuser app on '>app-password-1' '~app:*' '&app:*' \
    +@all -@admin +cluster | grep -qx OK
[ "$(redis --user app --pass app-password-1 --no-auth-warning set app:cli 1)" = OK ]
redis --user app --pass app-password-1 --no-auth-warning set cli 1 | grep -q NOPERM
redis --user app --pass wrong --no-auth-warning ping 2>&1 | grep -q 'WRONGPASS\|NOAUTH'
if redis-cli --tls -h localhost -p "$plain" ping 2>/dev/null | grep -q PONG; then
    echo "redis-cli trusted an unknown authority" >&2
    exit 1
fi
echo "ok: $(redis-cli --version)"
"$build/python/bin/python" python/try.py "$plain" "$aware" "$ca"
"$build/go-client" "$plain" "$aware" "$ca"
(cd "$build" && node try.js "$plain" "$aware" "$ca")
java -cp "$build/java/target/classes:$(cat "$build/java/classpath")" Try "$plain" "$aware" "$ca"
