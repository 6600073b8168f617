#!/usr/bin/env bash
# Full size, random weights, 1008 px: export, latency and peak memory beside transformers, in one run.
#
#   OCELLI_BENCH_PYTHON   a Python that has demos/training/requirements.txt [default: a new environment in target/]
#   OCELLI_BENCH_WORK     where 12 GB of checkpoint and graphs go [default: target/full_size]
#   OCELLI_BENCH_CLASSES  numbers of classes [default: 1 4 16]
#   OCELLI_BENCH_RUNS     measured runs of each [default: 3]
#   OCELLI_BENCH_OPTIONS  1 measures the engine's options as well, about ten minutes more [default: 0]
set -euo pipefail
cd "$(dirname "$0")/../.."

work=${OCELLI_BENCH_WORK:-target/full_size}
classes=${OCELLI_BENCH_CLASSES:-1 4 16}
runs=${OCELLI_BENCH_RUNS:-3}
threads=2
programs=${CARGO_TARGET_DIR:-target}/release
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
for target in onnxruntime tensorrt; do
  for precision in fp32 int8; do
    measure "ocelli export --detection-only --target $target --precision $precision" "$programs/ocelli" export \
      --checkpoint "$work/checkpoint" --output "$work/graphs-$target-$precision" --detection-only --target $target \
      --precision $precision --force
  done
done
measure "ocelli export" "$programs/ocelli" export --checkpoint "$work/checkpoint" --output "$work/graphs-all" --force
rm -r "$work/graphs-all"

# They take turns, so that a machine that slows down slows all.
for n in $classes; do
  # The engine, the exported folder, the format that the engine computes in.
  while read -r engine graphs precision; do
    "$programs/bench-detect" --quiet --engine "$engine" --model "$work/graphs-$graphs" ${precision:+--precision $precision} \
      --class-counts "$n" --runs "$runs" --warm-up 1 --threads $threads </dev/null | tee -a "$out/ocelli.jsonl"
  done <<ENGINES
onnxruntime onnxruntime-fp32
onnxruntime onnxruntime-int8
openvino tensorrt-fp32 fp32
openvino tensorrt-fp32 bf16
openvino tensorrt-int8 int8
embedded tensorrt-fp32
ENGINES
  for dtype in float32 bfloat16; do
    "$python" $here/reference.py --model "$work/checkpoint" --classes "$n" --runs "$runs" --warm-up 1 --dtype $dtype \
      --threads $threads | tee -a "$out/transformers.jsonl"
  done
done

if [ "${OCELLI_BENCH_OPTIONS:-0}" = 1 ]; then
  for precision in fp32 int8; do
    while read -r options; do
      # shellcheck disable=SC2086 — options are words
      "$programs/bench-engine" --graph "$work/graphs-onnxruntime-$precision/backbone.onnx" --runs 2 $options </dev/null \
        | tee -a "$out/engine.jsonl"
    done <<'OPTIONS'
--threads 2
--threads 1
--threads 2 --optimization extended
--threads 2 --optimization basic
--threads 2 --optimization disabled
--threads 2 --no-prepacking
--threads 2 --no-arena
--threads 2 --no-pattern
--threads 2 --spinning
OPTIONS
  done
fi
"$python" $here/summary.py "$out" | tee "$out/README.md"
