# The same recipes for people and for CI. `just` alone lists them.

_default:
    @just --list --unsorted

# all that CI runs, in its order
ci:
    .ci/run

# the whole loop on an embedded cluster, hub and journal
lab *ARGS:
    cargo run --release -- lab {{ ARGS }}

# all tests, the real control plane included; installs what is missing
test *ARGS:
    tests/run.sh {{ ARGS }}

# the tests inside the crates only: no cluster, no root, seconds
unit *ARGS:
    cargo test --workspace --lib --bins {{ ARGS }}

# the tests on the real control plane only, such as `just real wedges`
real FILTER="":
    tests/controlplane/build.sh
    cargo test --test tests -- real_{{ FILTER }}

# the same redeployment three ways on a real cluster with kube-proxy, then what a heal costs; a page; minutes; as root
demo REPORT="target/demo.md":
    tests/controlplane/build.sh etcd kube-apiserver kube-controller-manager kube-proxy
    mkdir -p "$(dirname {{ REPORT }})"
    DEMO_SECONDS=45 DEMO_REPORT={{ REPORT }} cargo test --test tests -- --nocapture demo::the_same_redeployment
    DEMO_HEALS=20 DEMO_REPORT={{ REPORT }} cargo test --test tests -- --nocapture demo::heals

# slice-healer under fire, at length: 1,000 rollouts, 200 stale events 7 s apart, killed at every write of a heal
fire ROLLOUTS="1000" EVENTS="200":
    tests/controlplane/build.sh
    FIRE_ROLLOUTS={{ ROLLOUTS }} cargo test --test tests -- --nocapture fire::rollouts::rollouts_on_the_real
    FIRE_KILLS=all cargo test --test tests -- --nocapture --test-threads=2 fire::kills fire::faults
    FIRE_EVENTS={{ EVENTS }} FIRE_EVERY=7 cargo test --test tests -- --nocapture fire::staleness

# 10,000 rollouts on the lab's cluster: none of them is taken for staleness
fire-lab ROLLOUTS="10000":
    FIRE_LAB_ROLLOUTS={{ ROLLOUTS }} cargo test --test tests -- --nocapture fire::rollouts::rollouts_on_the_lab

# so many modules on one cluster, and the Lease of one that is killed is waited out
several MODULES="5":
    tests/controlplane/build.sh
    SEVERAL_MODULES={{ MODULES }} cargo test --test tests -- --nocapture several::

# the long journal tests: 200 kills, 20 minutes of rotation each 0.2 s, 10,000 rotations
journal-long:
    JOURNAL_KILLS=200 JOURNAL_ROTATION_SECONDS=1200 JOURNAL_ROTATIONS=10000 JOURNAL_DAMAGE_ROUNDS=5000 \
        cargo test --test tests -- --nocapture journal_kill journal_rotation journal_damage

# what the module costs while nothing happens: bytes to disk and API requests, extrapolated to a day
idle SECONDS="600":
    IDLE_SECONDS={{ SECONDS }} cargo test --test tests -- --nocapture idle::

# the outbox test with 200 kills, and with other moments than CI's
outbox-long KILLS="200" SEED="20261201":
    OUTBOX_KILLS={{ KILLS }} OUTBOX_SEED={{ SEED }} cargo test --test tests -- --nocapture outbox_kill

# the module and the Python SDK over a link that is cut, slow and lossy, after IoT Edge's own connectivity
# tests; prints the figures. About 12 minutes
connectivity:
    tests/peers/setup.sh
    cargo build --release
    CONNECTIVITY=full SLICE_HEALER_BINARY="$(tools/target.sh)/release/slice-healer" \
        cargo test --test tests -- --nocapture connectivity

# our journal reader beside libsystemd and journalctl: a generated journal of 1,000,000 entries, then following a journald
bench-journal:
    #!/usr/bin/env bash
    set -euo pipefail
    tests/oracles/setup.sh
    cargo build --release --package slice-journal --example read
    target=$(tools/target.sh)
    oracles=${SLICE_HEALER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/slice-healer}/oracles/systemd
    CARGO_TARGET_DIR=$oracles cargo build --quiet --release --locked --manifest-path tests/oracles/systemd/Cargo.toml
    python3 tests/bench_journal.py "$target/release/examples/read" "$oracles/release/systemd-oracle"
    python3 tests/bench_follow.py "$target/release/examples/read" "$oracles/release/systemd-oracle"

# builds etcd, kube-apiserver and kube-controller-manager into the cache
controlplane *BINARIES:
    tests/controlplane/build.sh {{ BINARIES }}

# generates the deployment manifest and holds it against the schemas
manifest:
    tests/manifest.sh

# the static binary of the arm64 image, exactly as the Dockerfile builds it; minutes. `just arm64 lab` with the lab
arm64 *FEATURES:
    ls -l "$(tools/build.sh arm64 {{ FEATURES }})"

# the same for amd64
amd64 *FEATURES:
    ls -l "$(tools/build.sh amd64 {{ FEATURES }})"

# builds for arm64 and starts it under qemu-user: --version, inspect -f, doctor, health; then a second build, `lab --once`
qemu:
    tests/qemu.sh dist

# the same without optimisation, as CI does it
qemu-quick:
    tests/qemu.sh

# builds one architecture twice, each time from nothing, and compares the binaries; twice as many minutes
reproducible ARCH="arm64":
    tools/reproducible.sh {{ ARCH }}

# binaries, image tars, SBOMs and checksums for both architectures
release OUT="release":
    tools/release.sh {{ OUT }}

# formats the code
fmt:
    cargo fmt --all

# fails where the code is not formatted
fmt-check:
    cargo fmt --all -- --check

# clippy over everything; warnings are errors
lint:
    cargo clippy --workspace --all-targets --locked -- -D warnings
    cargo clippy --package slice-healer --no-default-features --locked -- -D warnings

# the documentation of our own crates; warnings are errors
doc:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items --locked

# licences, bans and sources of the dependencies (advisories need the network: see the workflow)
deny:
    cargo deny --workspace --locked --log-level error check licenses bans sources

# the judge against the real controller on 5,000 random Services; prints seed, counts, mismatches
differential-large SERVICES="5000" SEED="20261130":
    tests/controlplane/build.sh
    SLICE_HEALER_SERVICES={{ SERVICES }} SLICE_HEALER_SEED={{ SEED }} cargo test --test tests -- \
        --nocapture differential::the_judge_agrees_with_the_controller_on_a_fixed_cluster

# the judge against the real controller on COUNT random clusters of 150 Services each, every corruption TIMES times
differential-seeds COUNT="20" SEED="1" TIMES="2":
    tests/controlplane/build.sh
    SLICE_HEALER_SEEDS={{ COUNT }} SLICE_HEALER_SEED={{ SEED }} SLICE_HEALER_CORRUPTIONS={{ TIMES }} cargo test --test tests -- \
        --nocapture differential::the_judge_agrees_with_the_controller_on_a_fixed_cluster

# 50 Services and 110 pods, the whole module in a control group of 32 MiB and a tenth of a core; as root
small-machine:
    tests/controlplane/build.sh
    cargo build --release
    SLICE_HEALER_CGROUP=1 SLICE_HEALER_BINARY="$(tools/target.sh)/release/slice-healer" \
        cargo test --test tests -- --nocapture small_machine

# the judge at 1,000 Services with 100 endpoints each: time and memory
bench-judge:
    cargo run --release --package slice-core --example scale

# `inspect -f` on a dump of that cluster beside jq: time and memory
bench-inspect:
    #!/usr/bin/env bash
    set -euo pipefail
    cargo build --release --package slice-core --example scale
    cargo build --release
    target=$(tools/target.sh)
    python3 tests/bench_inspect.py "$target/release/slice-healer" "$target/release/examples/scale"

# the same on the oldest Kubernetes whose modules all are to be had (tests/controlplane/oldest.mod)
differential-oldest SERVICES="300" SEED="20261130":
    KUBEBUILDER_ASSETS="$(tests/controlplane/oldest.sh)" \
        SLICE_HEALER_SERVICES={{ SERVICES }} SLICE_HEALER_SEED={{ SEED }} cargo test --test tests -- \
        --nocapture differential::the_judge_agrees_with_the_controller_on_a_fixed_cluster

# fuzzes the loader and the judge for so many seconds each; needs cargo-fuzz and clang's or gcc's runtime
fuzz-judge SECONDS="600":
    mkdir -p fuzz/corpus/dump_text
    RUSTC_BOOTSTRAP=1 cargo fuzz run dump_text fuzz/corpus/dump_text tests/cases -- \
        -max_total_time={{ SECONDS }} -len_control=0 -max_len=65536 -timeout=20 -rss_limit_mb=1024
    RUSTC_BOOTSTRAP=1 cargo fuzz run dump_tree -- \
        -max_total_time={{ SECONDS }} -len_control=0 -max_len=160 -timeout=20 -rss_limit_mb=1024

# fuzzes the journal reader for so many seconds each, with corrupted files of every variant; needs cargo-fuzz
fuzz-journal SECONDS="900":
    fuzz/journals.sh fuzz/corpus/real && mkdir -p fuzz/corpus/journal_bytes
    FUZZ_JOURNALS=fuzz/corpus/real RUSTC_BOOTSTRAP=1 cargo fuzz run journal_edits -- \
        -max_total_time={{ SECONDS }} -len_control=0 -max_len=200 -timeout=20 -rss_limit_mb=1024
    RUSTC_BOOTSTRAP=1 cargo fuzz run journal_bytes fuzz/corpus/journal_bytes fuzz/corpus/real -- \
        -max_total_time={{ SECONDS }} -len_control=0 -max_len=8388608 -timeout=20 -rss_limit_mb=1024
