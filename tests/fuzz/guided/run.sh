#!/usr/bin/env bash
# Fuzzes the parsers of files and messages, guided by coverage: SECONDS for each target, or for those that are named.
#
#     tests/fuzz/guided/run.sh SECONDS [TARGET...]
#
# Inputs that reach new code are kept in target/fuzz/corpus and used again. An input that panics, allocates or takes too much
# is written to target/fuzz/found, and belongs as a test beside its parser. libFuzzer is compiled with the C++ compiler.
set -euo pipefail
cd "$(dirname "$0")/../../.."

seconds=${1:?the seconds for each target}
shift
build=${OCELLI_FUZZ_BUILD:-target/fuzz/build} work=${OCELLI_FUZZ_WORK:-target/fuzz}
# What cargo-fuzz passes, all of it stable: counters and comparisons for libFuzzer, and checks of overflow.
flags="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=3 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters"
flags+=" -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions"
# With a target, build scripts are compiled without the flags.
host=$(rustc -vV | sed -n 's/^host: //p')
RUSTFLAGS=$flags CARGO_TARGET_DIR=$build cargo build -q --locked --manifest-path tests/fuzz/guided/Cargo.toml --target "$host"
program=$build/$host/debug/ocelli-fuzz-guided

mkdir -p "$work/corpus" "$work/found" "$work/log"
seeds=$(mktemp -d)
trap 'rm -rf "$seeds"' EXIT
OCELLI_FUZZ_SEEDS=$seeds "$program"
if [ $# -eq 0 ]; then
  mapfile -t targets < <(ls "$seeds")
else
  targets=("$@")
fi
failed=()
for target in "${targets[@]}"; do
  mkdir -p "$work/corpus/$target"
  log=$work/log/$target.txt
  if OCELLI_FUZZ_TARGET=$target "$program" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=65536 \
    -artifact_prefix="$work/found/$target-" -print_final_stats=1 "$work/corpus/$target" "$seeds/$target" 2>"$log"; then
    reached=$(grep -o 'cov: [0-9]*' "$log" | tail -1)
    printf '%s: %s cases, %s\n' "$target" "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" "$reached"
  else
    failed+=("$target")
    printf '%s: FAILED, %s\n' "$target" "$(grep -m1 -E 'panicked|^allocated|ERROR' -A1 "$log" | tr '\n' ' ')"
  fi
done
[ ${#failed[@]} -eq 0 ] || { printf 'found in %s: see %s\n' "${failed[*]}" "$work/found" >&2; exit 1; }
