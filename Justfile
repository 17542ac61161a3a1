# `just` lists these. Each is a plain command that also works without just.

# list the recipes
default:
    @just --list --unsorted

# a cluster on this machine, its coordinator killed under load, and a count of what was lost
demo *ARGS:
    cargo run --release -- demo {{ARGS}}

# every test
test:
    cargo test --workspace

# what must hold before a change is merged
ci:
    .ci/run

# format
fmt:
    cargo fmt --all

# clippy, warnings are errors
lint:
    cargo clippy --workspace --all-targets -- -D warnings

# the documentation of all crates
docs:
    cargo doc --workspace --no-deps --open

# two web services that share a cache (see README.md for curl lines)
example:
    cargo run --release -p doyen-examples --bin two-services
