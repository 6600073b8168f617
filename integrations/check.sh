#!/usr/bin/env bash
# Builds and tests the nodes, beside other implementations of their protocols from PyPI:
#   check.sh               everything: 80 s once it is built; the first time it compiles 640 crates
#   check.sh --goldens     writes the goldens of the serialisation anew
# Programs on DDS run in a network namespace with nothing but its loopback interface; that needs root.
set -euo pipefail
cd "$(dirname "$0")"

target=${CARGO_TARGET_DIR:-$PWD/target}
python=$target/peers/bin/python
step() { printf '\n-- %(%T)T %s\n' -1 "$*"; }

step "the peers"
[ -x "$python" ] || python3 -m venv "$target/peers"
"$python" -m pip install -q -r peers.txt
if [ "${1:-}" = --goldens ]; then
  exec "$python" robot/tests/golden/make.py
fi

step "build, lints, tests"
cargo fmt --all --check
# As `cargo clippy`, on what is built anyway: it would check the dependencies a second time.
CLIPPY_ARGS="-Dwarnings__CLIPPY_HACKERY__" RUSTC_WORKSPACE_WRAPPER=clippy-driver cargo build --workspace --all-targets
cargo test --workspace
cargo build --workspace
# Results are compared with those of the program.
ocelli=${OCELLI:-../target/debug/ocelli}
[ -n "${OCELLI:-}" ] || cargo build --manifest-path ../Cargo.toml -p ocelli-cli --no-default-features

step "the goldens"
"$python" robot/tests/golden/make.py "$target/cdr.txt"
diff "$target/cdr.txt" robot/tests/golden/cdr.txt

step "recordings"
rm -rf "$target/recordings"
mkdir "$target/recordings"
"$python" mcap/tests/check.py "$target/debug/ocelli-mcap" "$ocelli" ../demos/scenes "$target/recordings"

namespace=ocelli-check-$$
ip netns add "$namespace"
trap 'ip netns delete "$namespace"' EXIT
ip netns exec "$namespace" ip link set lo up
ip netns exec "$namespace" ip route add 224.0.0.0/4 dev lo

step "ROS 2"
CYCLONEDDS_URI='<CycloneDDS><Domain><General><Interfaces><NetworkInterface name="lo" multicast="true"/></Interfaces></General></Domain></CycloneDDS>' \
  ip netns exec "$namespace" "$python" ros2/tests/peer.py "$target/debug/ocelli-ros2" ../demos/scenes

step dora
rm -rf "$target/dataflows"
mkdir "$target/dataflows"
started=$SECONDS
ip netns exec "$namespace" "$python" dora/tests/check.py "$target/debug/ocelli-dora" "$ocelli" ../demos/scenes "$target/dataflows"
echo "dora: $((SECONDS - started)) s"

step done
