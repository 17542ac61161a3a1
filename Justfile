# `just` lists these. Each is a plain command that also works without just.

# list the recipes
default:
    @just --list --unsorted

# a cluster on this machine, its coordinator killed under load, and a count of what was lost
demo *ARGS:
    cargo run --release -- demo {{ARGS}}

# everything that may go wrong with a cluster on this machine, and a judgement of every operation, e.g. `just chaos --minutes 2`
chaos *ARGS:
    cargo run --release -- chaos --report chaos.html {{ARGS}}

# chaos for so many hours, ten minutes and a new seed a round; ends with the first round that does not hold, and keeps its logs
soak HOURS="8" *ARGS:
    cargo run --release -- chaos --hours {{HOURS}} --backups 2 --report chaos.html {{ARGS}}

# is our judge of histories right? Porcupine judges the same ten thousand (needs Go, and its module proxy once)
porcupine:
    DOYEN_HISTORIES={{justfile_directory()}}/target/histories.json cargo test -p doyen --features testkit --lib histories_are_written_for_porcupine -- --ignored
    cd tests/scripts/porcupine && go run . {{justfile_directory()}}/target/histories.json

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

# two web services that share a cache (see docs/embedding.md for curl lines)
example:
    cargo run --release -p doyen-examples --bin two-services

# thousands of seeds of the simulation, e.g. `just sim 5000`
sim SEEDS="2000":
    cargo run --release -p doyen-tests --bin sim -- --seeds {{SEEDS}}

# as many seeds as so many hours hold, others every time; what fails is made small and told
sim-night HOURS="8":
    cargo run --release -p doyen-tests --bin sim -- --hours {{HOURS}}

# the story of one seed: who voted, what was committed, what failed; `just sim-one 17 --all` tells every message
sim-one SEED *ARGS:
    cargo run --release -p doyen-tests --bin sim -- --seed {{SEED}} {{ARGS}}

# mutated inputs for a decoder, e.g. `just fuzz frames 600`; `just fuzz all 60` for each
fuzz TARGET="all" SECONDS="60" *ARGS:
    cargo run --release -p doyen-tests --bin fuzz -- --target {{TARGET}} --seconds {{SECONDS}} {{ARGS}}

# breaks each rule of docs/agreement.md on purpose, until its check or a seed notices (minutes), e.g. `just mutants --only votes`, or `--checks` (seconds)
mutants *ARGS:
    cargo run --release -p doyen-tests --features mutants --bin mutants -- {{ARGS}}

# what failures, starts, joins, idling and memory cost on this machine (some minutes)
figures:
    cargo build --release -p doyen-cli -p doyen-tests
    target/release/figures kill --runs 20 --victim coordinator --binary target/release/doyen
    target/release/figures kill --runs 20 --victim youngest --binary target/release/doyen
    target/release/figures stop --runs 5 --binary target/release/doyen
    target/release/figures term --runs 10 --binary target/release/doyen
    target/release/figures start --runs 5 --binary target/release/doyen
    target/release/figures join --runs 3 --binary target/release/doyen
    target/release/figures idle --binary target/release/doyen
    target/release/figures bytes --binary target/release/doyen

# how long a cluster stands still while it grows, expires, copies and drops (some minutes, 6 GB)
stall *ARGS:
    cargo build --release -p doyen-cli -p doyen-tests
    target/release/figures stall --binary target/release/doyen {{ARGS}}

# what readers and writers notice while a node joins, is drained, dies, and all are restarted twenty times (an hour and more, 4 GB)
move *ARGS:
    cargo build --release -p doyen-cli -p doyen-tests
    target/release/figures move --binary target/release/doyen {{ARGS}}

# what a second data thread gives a node, beside one
threads *ARGS:
    cargo build --release -p doyen-cli -p doyen-tests
    target/release/figures threads --binary target/release/doyen {{ARGS}}

# system calls by operation, as the kernel counts them (as root)
calls:
    cargo build --release -p doyen-cli -p doyen-tests
    target/release/figures calls --binary target/release/doyen

# beside Redis Cluster, Hazelcast and Olric in one run: a report in docs/notes (an hour); `just bench quick` only prints (below ten minutes)
bench MODE="full" *ARGS:
    cargo build --profile dist -p doyen-cli
    cargo build --release -p doyen-tests --bin bench
    target/release/bench {{MODE}} {{ARGS}}

# has Doyen become slower than the committed figures say, as ratios to Redis Cluster in the same run? (some minutes)
bench-check *ARGS:
    cargo build --profile dist -p doyen-cli
    cargo build --release -p doyen-tests --bin bench
    target/release/bench check {{ARGS}}

# what a cluster of 3 to 100 nodes costs on this machine
scale NODES="3,10,30,50,100":
    cargo build --release -p doyen-cli -p doyen-tests
    target/release/figures scale --nodes {{NODES}} --binary target/release/doyen

# who is taken for dead while other processes want every core
load MINUTES="10" NODES="3":
    cargo build --release -p doyen-cli -p doyen-tests
    target/release/figures load --minutes {{MINUTES}} --nodes {{NODES}} --binary target/release/doyen

# what the parts of the data path cost, each by itself, and what they allocate, e.g. `just bench-parts store`
bench-parts *ARGS:
    cargo bench -p doyen --features bench-internals,resp --bench parts -- {{ARGS}}
    cargo bench -p doyen --bench counts

# what finding the partition of a key costs in each mode, and what planning costs (two minutes)
placement-bench *ARGS:
    cargo bench -p doyen-placement --bench lookup -- {{ARGS}}
    cargo bench -p doyen-placement --bench plan

# builds the last state of the wire version before, rolls a loaded cluster from it to this one, and back
upgrade:
    tests/scripts/upgrade.sh

# writes the bytes of the newest wire version to tests/corpus: only while that version is not released
corpus VERSION:
    DOYEN_CORPUS={{VERSION}} cargo test -p doyen-tests --test wire -- --ignored

# the parts of Valkey's own test suite that concern what Doyen has, from a checkout of valkey-io/valkey (needs tclsh)
valkey-suite checkout:
    cargo build -p doyen-cli
    tests/scripts/valkey-suite.sh {{ checkout }} target/debug/doyen

# the same thousands of commands to Doyen and to redis-server 7, raw replies compared (needs redis-server and redis-tools)
compare-redis:
    cargo build --release -p doyen-cli
    tests/scripts/compare-redis.py target/release/doyen
