#!/bin/sh
# Becomes the program of a library: run.sh LIBRARY MODE SETTINGS PREFIX ADDRESSES
set -eu
here=$(realpath "$(dirname "$0")")
build=$here/../../target/gaps
library=$1
shift
java() {
    class=$1
    shift
    exec java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmx128m \
        -cp "$build/java/target/classes:$(cat "$build/java/classpath")" "$class" "$@"
}
case $library in
    redis-py) exec "$build/python/bin/python" "$here/python/gaps.py" "$@" ;;
    ioredis | node-redis) exec node "$build/node/$library.js" "$@" ;;
    go-redis) exec "$build/go-redis" "$@" ;;
    Jedis | Lettuce) java "${library}Gaps" "$@" ;;
    redis-rs | fred) exec "$build/rust/release/gaps" "$library" "$@" ;;
    *)
        echo "there is no program for $library" >&2
        exit 2
        ;;
esac
