#!/usr/bin/env bash
# Students of the released sizes beside the vision transformer: random weights, OpenVINO, two threads.
#
#   OCELLI_BENCH_PYTHON   a Python that has training/requirements.txt and timm
#   OCELLI_BENCH_WORK     where 12 GB of checkpoints and graphs go [default: target/full_size]
#   OCELLI_BENCH_CLASSES  numbers of classes [default: 1 4]
#   OCELLI_BENCH_RUNS     measured runs of each [default: 3]
set -euo pipefail
cd "$(dirname "$0")/../.."

work=${OCELLI_BENCH_WORK:-target/full_size}
classes=${OCELLI_BENCH_CLASSES:-1 4}
runs=${OCELLI_BENCH_RUNS:-3}
python=${OCELLI_BENCH_PYTHON:-$work/venv/bin/python}
programs=${CARGO_TARGET_DIR:-target}/release
here=benchmarks/full_size
out=benchmarks/runs/$(date +%F)-students-cpu
mkdir -p "$work/graphs" "$out"

[ -f "$work/checkpoint/model.safetensors" ] || "$python" $here/make_checkpoint.py --output "$work/checkpoint"
[ -f "$work/students/tokenizer.json" ] || {
  "$python" $here/make_students.py --base "$work/checkpoint" --output "$work/students"
  cp "$work/checkpoint/tokenizer.json" "$work/students/"
}

# The checkpoint, its name, and the base where it has an image backbone only.
export_graphs() {
  local checkpoint=$1 name=$2
  shift 2
  "$programs/ocelli" export --checkpoint "$checkpoint" --output "$work/graphs/$name" --detection-only --target tensorrt \
    --force "$@" >/dev/null
}
export_graphs "$work/checkpoint" vit
for file in "$work"/students/dart_*.pt; do
  export_graphs "$file" "$(basename "$file" .pt)" --base "$work/checkpoint"
done
for file in "$work"/students/efficient_*.pt; do
  export_graphs "$file" "$(basename "$file" .pt)"
done
for side in 336 504; do
  export_graphs "$work/students/dart_rep_vit_m2_3.pt" "dart_rep_vit_m2_3-$side" --base "$work/checkpoint" --imgsz $side
  export_graphs "$work/students/efficient_efficient_vit_m.pt" "efficient_efficient_vit_m-$side" --imgsz $side
done

# Runs are never edited: what another run of the day left is replaced whole.
rm -f "$out"/*.jsonl
for precision in bf16 fp32; do
  for n in $classes; do
    for graphs in "$work"/graphs/*/; do
      printf '{"model":"%s","load":"%s"}\n' "$(basename "$graphs")" "$(cut -d' ' -f1-3 /proc/loadavg)" >>"$out/$precision.jsonl"
      "$programs/bench" detect --quiet --engine openvino --model "$graphs" --precision $precision --class-counts "$n" \
        --runs "$runs" --warm-up 1 --threads 2 </dev/null | tee -a "$out/$precision.jsonl"
    done
  done
done
