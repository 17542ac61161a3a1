#!/bin/sh
# Builds the last state of this repository that speaks no more than the wire version before the
# present one, and rolls a loaded cluster from it to the present state and back.
set -eu
cd "$(dirname "$0")/../.."

# The highest version in a file like level.rs.
highest() {
    sed -n 's/^pub const LEVELS: (u16, u16) = ([0-9]*, \([0-9]*\));$/\1/p'
}

present=$(highest <placement/src/level.rs)
previous=
for commit in $(git rev-list --first-parent HEAD); do
    version=$(git show "$commit:placement/src/level.rs" | highest)
    if [ -n "$version" ] && [ "$version" -lt "$present" ]; then
        previous=$commit
        break
    fi
done
if [ -z "$previous" ]; then
    echo "no commit speaks less than version $present: fetch the whole history (git fetch --unshallow)" >&2
    exit 1
fi
git --no-pager log -1 --format="previous state: %h %s (version $version)" "$previous"

tree=target/previous
if [ -d "$tree" ]; then
    git -C "$tree" checkout --quiet --detach "$previous"
else
    git worktree prune
    git worktree add --quiet --detach "$tree" "$previous"
fi
cargo build --manifest-path "$tree/Cargo.toml" --target-dir target/previous-build -p doyen-tests --bin doyen-under-test
DOYEN_PREVIOUS="$PWD/target/previous-build/debug/doyen-under-test" \
    cargo test -p doyen-tests --test cluster upgrade:: -- --ignored --nocapture
