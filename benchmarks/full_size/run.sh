#!/usr/bin/env bash
# Full size, random weights, 1008 px: export, latency and peak memory beside transformers and torch.onnx, in one run.
#
#   OCELLI_BENCH_PYTHON   a Python that has requirements.txt [default: a new environment in target/]
#   OCELLI_BENCH_WORK     where 20 GB of checkpoints and graphs go [default: target/full_size]
#   OCELLI_BENCH_CLASSES  numbers of classes, each with its measured runs [default: 4:5 1:5 16:5 80:5]
#   OCELLI_BENCH_PEERS    0 leaves out torch.compile and torch.onnx [default: 1]
#   OCELLI_BENCH_OPTIONS  1 measures the engine's options as well, about ten minutes more [default: 0]
#
# On two slow cores the default takes four hours. bf16 is measured on CPUs that have instructions for it.
set -euo pipefail
cd "$(dirname "$0")/../.."

work=${OCELLI_BENCH_WORK:-target/full_size}
counts=${OCELLI_BENCH_CLASSES:-4:5 1:5 16:5 80:5}
threads=2
programs=${CARGO_TARGET_DIR:-target}/release
here=benchmarks/full_size
out=benchmarks/runs/$(date +%F)-full-size-cpu
mkdir -p "$work" "$out"

python=${OCELLI_BENCH_PYTHON:-$work/venv/bin/python}
if [ ! -x "$python" ]; then
  python3 -m venv "$work/venv"
  "$python" -m pip install --quiet -r $here/requirements.txt
fi
[ -f "$work/checkpoint/model.safetensors" ] || "$python" $here/make_checkpoint.py --output "$work/checkpoint"

has_bf16() { grep -q 'avx512_bf16\|amx_bf16' /proc/cpuinfo; }

# Runs are never edited: what another run of the day left is replaced whole.
rm -f "$out"/*.jsonl
measure() { "$python" $here/measure_command.py "$@" | tee -a "$out/export.jsonl"; }
for target in onnxruntime tensorrt; do
  for precision in fp32 int8; do
    measure "ocelli export --detection-only --screen --target $target --precision $precision" "$programs/ocelli" export \
      --checkpoint "$work/checkpoint" --output "$work/graphs-$target-$precision" --detection-only --screen \
      --target $target --precision $precision --force
  done
done
measure "ocelli export" "$programs/ocelli" export --checkpoint "$work/checkpoint" --output "$work/graphs-all" --force
rm -r "$work/graphs-all"

# The engine, the exported folder, the format that the engine computes in.
engines='openvino tensorrt-fp32 fp32
openvino tensorrt-int8 int8
onnxruntime onnxruntime-fp32
onnxruntime onnxruntime-int8
embedded tensorrt-fp32'
dtypes=float32
if has_bf16; then
  engines="openvino tensorrt-fp32 bf16
$engines"
  dtypes="float32 bfloat16"
fi

# CLASSES RUNS WARM_UP ENGINES [OPTION…]
ocelli() {
  local classes=$1 runs=$2 warm_up=$3 engine graphs precision
  while read -r engine graphs precision; do
    "$programs/bench" detect --quiet --engine "$engine" --model "$work/graphs-$graphs" ${precision:+--precision "$precision"} \
      --class-counts "$classes" --runs "$runs" --warm-up "$warm_up" --threads $threads "${@:5}" </dev/null \
      | tee -a "$out/ocelli.jsonl"
  done <<<"$4"
}
# CLASSES RUNS WARM_UP DTYPE [OPTION…]
transformers() {
  "$python" $here/reference.py --model "$work/checkpoint" --classes "$1" --runs "$2" --warm-up "$3" --dtype "$4" \
    --threads $threads "${@:5}" | tee -a "$out/transformers.jsonl"
}

# RUNS
torch_onnx() {
  local graph=$work/torch_onnx/backbone/backbone.onnx formats="fp32 int8" precision
  if has_bf16; then formats="bf16 $formats"; fi
  [ -f "$graph" ] || "$python" $here/torch_onnx.py --model "$work/checkpoint" --output "$work/torch_onnx" --parts backbone \
    | tee -a "$out/torch_onnx.jsonl"
  for precision in $formats; do
    "$python" $here/torch_onnx_engines.py --graph "$graph" --engine openvino --precision "$precision" --runs "$1" \
      --threads $threads | tee -a "$out/torch_onnx.jsonl"
  done
  "$python" $here/torch_onnx_engines.py --graph "$graph" --engine onnxruntime --runs "$1" --threads $threads \
    | tee -a "$out/torch_onnx.jsonl"
}

# They take turns, so that a machine that slows down slows all.
for count in $counts; do
  n=${count%:*} runs=${count#*:}
  # Many classes take minutes; the first run is no different from the others then.
  warm_up=$((n < 32))
  for dtype in $dtypes; do
    transformers "$n" "$runs" $warm_up "$dtype"
    if [ "$n" = 4 ] && [ "${OCELLI_BENCH_PEERS:-1}" = 1 ]; then
      transformers "$n" "$runs" 1 "$dtype" --compile
    fi
  done
  if [ "$n" -lt 32 ]; then
    ocelli "$n" "$runs" 1 "$engines"
    if [ "$n" = 4 ] && [ "${OCELLI_BENCH_PEERS:-1}" = 1 ]; then torch_onnx "$runs"; fi
  else
    # COCO's images show 3.5 of its 80 categories on average (arXiv 1405.0312).
    ocelli "$n" "$runs" 1 "$(grep ^openvino <<<"$engines")" --screen-pass 4
  fi
done

if [ "${OCELLI_BENCH_OPTIONS:-0}" = 1 ]; then
  for precision in fp32 int8; do
    while read -r options; do
      # shellcheck disable=SC2086 # options are words
      "$programs/bench" engine --graph "$work/graphs-onnxruntime-$precision/backbone.onnx" --runs 2 $options </dev/null \
        | tee -a "$out/engine.jsonl"
    done <<'OPTIONS'
--threads 2
--threads 1
--threads 2 --no-arena
OPTIONS
  done
fi
"$python" $here/summary.py "$out" | tee "$out/README.md"
