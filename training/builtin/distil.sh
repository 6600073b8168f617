#!/usr/bin/env bash
# Distils the built-in model and measures what comes out on held-out scenes: a pruned trunk, trained again, and a RepViT.
#
#   training/builtin/distil.sh [WORK]     [default: target/distillation]; a second call continues where the first one stopped
#
# PYTHON is an interpreter with the packages of requirements.txt, OCELLI the program [default: target/debug/ocelli]. SCENES
# are drawn for training, MEASURED are measured on. PRUNED_STEPS, STUDENT_STEPS and DETECTION_STEPS are the lengths of the
# runs, of 8, 16 and 8 scenes a step. STAGES selects some of: scenes prune pruned student detection figures.
set -euo pipefail
cd "$(dirname "$0")/../.."

python=${PYTHON:-python3}
ocelli=${OCELLI:-target/debug/ocelli}
work=${1:-target/distillation}
stages=${STAGES:-scenes prune pruned student detection figures}
here=training/builtin
export OMP_NUM_THREADS=1 PYTHONPATH=training
want() { [[ " $stages " == *" $1 "* ]]; }
mkdir -p "$work"
"$python" $here/weights.py join

# A finished stage is not done again.
draw() { [ -e "$1" ] || { "$python" "${@:2}" --output "$1.part" && mv "$1.part" "$1"; }; }
distil() {
  local name=$1
  shift
  [ ! -e "$work/$name/done" ] || return 0
  if [ -e "$work/$name/state.pt" ]; then set -- "$@" --resume; fi
  "$python" -m ocelli_training distill --teacher src/builtin --images "$work/training.tar" --output "$work/$name" \
    --threads 1 --level-weights 0 0 1 --warm-up 20 --save-every 20 "$@"
  touch "$work/$name/done"
}

if want scenes; then
  draw "$work/training.tar" $here/write_training_scenes.py --count "${SCENES:-4480}"
  draw "$work/measured" $here/write_scenes.py --count "${MEASURED:-200}"
  draw "$work/searched" $here/write_scenes.py --count 32 --purpose validation
fi
if want prune; then
  "$ocelli" prune --model src/builtin --images "$work/searched" --classes src/builtin/vocabulary.txt --num-prune 4 \
    --output "$work/prune.json"
fi
if want pruned; then
  distil pruned --phase pruned --prune "$work/prune.json" --steps "${PRUNED_STEPS:-240}" --batch 8 --rate 5e-4
fi
network=(--student repvit_m0_9 --student-options '{"embed_dim": [40, 80, 160], "depth": [1, 1, 6]}')
if want student; then
  distil student --phase full "${network[@]}" --steps "${STUDENT_STEPS:-420}" --batch 16 --rate 2e-3
fi
if want detection; then
  distil detection --phase full "${network[@]}" --student-weights "$work/student/student.pt" --steps "${DETECTION_STEPS:-200}" \
    --batch 8 --rate 5e-4 --detection-weight 0.3 --classes src/builtin/vocabulary.txt
fi
if want figures; then
  lists=$("$python" - "$work/prune.json" <<'END'
import json, sys
step = json.load(open(sys.argv[1]))["steps"][-1]
print(*(f"--{name} {','.join(map(str, step[name.replace('-', '_')]))}" for name in ("skip-blocks", "mask-blocks") if step[name.replace("-", "_")]))
END
  )
  measure() {
    "$ocelli" export --checkpoint "${@:2}" --detection-only --force --output "$work/graphs/$1" >/dev/null
    "$ocelli" eval --images "$work/measured" --annotations "$work/measured/annotations.json" --model "$work/graphs/$1" \
      --json "$work/$1.json" >/dev/null
    "$python" -c 'import json, sys
boxes = json.load(open(sys.argv[2]))["models"][0]["bbox"]
print(sys.argv[1], *(f"{name} {boxes[name]:.4f}" for name in ("ap", "ap50")))' "$1" "$work/$1.json"
  }
  mkdir -p "$work/graphs"
  measure whole src/builtin
  # shellcheck disable=SC2086
  measure pruned-untrained src/builtin $lists
  for name in pruned student detection; do
    file=student.pt
    [ "$name" != pruned ] || file=pruned.pt
    [ ! -e "$work/$name/$file" ] || measure "$name" "$work/$name/$file" --base src/builtin
  done
fi
