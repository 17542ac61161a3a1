#!/usr/bin/env bash
# Makes the Debian package of a program that is built already, and prints its path.
#     node/packaging/debian/build.sh x86_64-unknown-linux-musl
# It needs cargo-deb (cargo install cargo-deb --locked).
set -euo pipefail
cd "$(dirname "$0")/../../.."
target=$1
built=${CARGO_TARGET_DIR:-target}/$target/dist
# What the program says of itself. Cargo.toml names these files (package.metadata.deb).
made=$built/packaging
rm -rf "$made"
mkdir -p "$made"
"$built/doyen" man "$made/man1"
gzip --best --no-name "$made"/man1/*
"$built/doyen" completions bash > "$made/doyen.bash"
"$built/doyen" completions zsh > "$made/_doyen"
"$built/doyen" completions fish > "$made/doyen.fish"
# As every package of Debian, without symbols: a panic still says its file and line.
cargo deb -p doyen-cli --profile dist --target "$target" --no-build --strip
