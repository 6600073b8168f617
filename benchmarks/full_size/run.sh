#!/usr/bin/env bash
# Full size, random weights, 1008 px: export, latency and peak memory beside transformers, in one run.
#
#   OCELLI_BENCH_PYTHON   a Python that has demos/training/requirements.txt [default: a new environment in target/]
#   OCELLI_BENCH_WORK     where 12 GB of checkpoint and graphs go [default: target/full_size]
#   OCELLI_BENCH_CLASSES  numbers of classes [default: 1 4 16]
#   OCELLI_BENCH_RUNS     measured runs of each [default: 3]
set -euo pipefail
cd "$(dirname "$0")/../.."

work=${OCELLI_BENCH_WORK:-target/full_size}
classes=${OCELLI_BENCH_CLASSES:-1 4 16}
runs=${OCELLI_BENCH_RUNS:-3}
threads=2
here=benchmarks/full_size
out=benchmarks/runs/$(date +%F)-full-size-cpu
mkdir -p "$work" "$out"

python=${OCELLI_BENCH_PYTHON:-$work/venv/bin/python}
if [ ! -x "$python" ]; then
  python3 -m venv "$work/venv"
  "$python" -m pip install --quiet -r demos/training/requirements.txt
fi
[ -f "$work/checkpoint/model.safetensors" ] || "$python" $here/make_checkpoint.py --output "$work/checkpoint"

# Runs are never edited: what another run of the day left is replaced whole.
rm -f "$out"/*.jsonl
measure() { "$python" $here/measure_command.py "$@" | tee -a "$out/export.jsonl"; }
measure "ocelli export --detection-only" target/release/ocelli export --checkpoint "$work/checkpoint" \
  --output "$work/graphs" --detection-only --force
measure "ocelli export" target/release/ocelli export --checkpoint "$work/checkpoint" --output "$work/graphs-all" --force
rm -r "$work/graphs-all"

# The two take turns, so that a machine that slows down slows both.
for n in $classes; do
  target/release/bench-detect --quiet --model "$work/graphs" --class-counts "$n" --runs "$runs" --warm-up 1 \
    --threads $threads | tee -a "$out/ocelli.jsonl"
  "$python" $here/reference.py --model "$work/checkpoint" --classes "$n" --runs "$runs" --warm-up 1 \
    --threads $threads | tee -a "$out/transformers.jsonl"
done
"$python" $here/summary.py "$out" | tee "$out/README.md"
