#!/bin/sh
# Builds the programs that `figures gaps` runs, into target/gaps. It needs python3, go, node with
# npm, mvn with a JDK 17, and cargo.
set -eu
cd "$(dirname "$0")"
build=../../target/gaps
mkdir -p "$build/node" "$build/go" "$build/java"
build=$(realpath "$build")
[ -d "$build/python" ] || python3 -m venv "$build/python"
"$build/python/bin/pip" install --quiet --disable-pip-version-check redis==8.1.0 pybreaker==1.4.1
cp node/* "$build/node/"
(cd "$build/node" && npm install --silent --no-audit --no-fund)
cp go/* "$build/go/"
(cd "$build/go" && go mod tidy >/dev/null 2>&1 && go build -o ../go-redis .)
cp -r java/* "$build/java/"
(cd "$build/java" && mvn --quiet compile dependency:build-classpath -Dmdep.outputFile=classpath)
cargo build --release --manifest-path rust/Cargo.toml --target-dir "$build/rust"
