#!/usr/bin/env bash
# Trains on a machine that is available for some minutes at a time and returns small files only.
#
#   training/builtin/in_parts.sh 1 TARGET            the first part; writes to TARGET what the next one needs
#   training/builtin/in_parts.sh 2 TARGET BACK       continues from BACK, the target of the previous part
#   training/builtin/in_parts.sh 3 TARGET BACK       the last part: the model, its curves and first figures
#
# There may be more middle parts. PYTHON is the interpreter. MINUTES is the training time of this part and WHOLE that of
# all; leave two minutes of a part for the rest. SIZES are the batch sizes to try, smallest first. START is a checkpoint
# folder to start from. DEVICE selects GPU or CPU.
set -euo pipefail

part=${1:?part: 1, 2 or 3}
target=$(mkdir -p "${2:?target folder}" && cd "$2" && pwd)
back=${3:+$(cd "$3" && pwd)}
cd "$(dirname "$0")"

python="${PYTHON:-python3}"
device="${DEVICE:-cuda}"
whole="${WHOLE:-18}"
prompts="${PROMPTS:-8}"
workers="${WORKERS:-10}"
if [ -z "${START:-}" ]; then "$python" weights.py join; fi
start="${START:-../../src/builtin}"
run="${RUN:-../../target/training/parts}"
default=(6.5 8.5 3)
minutes="${MINUTES:-${default[$((part < 3 ? part - 1 : 2))]}}"
export PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=false
exec > >(tee "$target/log$part.txt") 2>&1

options=(--device "$device" --prompts "$prompts" --workers "$workers" --threads 4)
masks() { echo $(($1 * 3 / 2)); }

# Images in ten seconds with this batch size, 0 if it fails; prints the end of the log.
try() {
  rm -rf "$run.trial"
  # In the foreground: otherwise the planning processes are ended too, and the measurement is lost.
  timeout --foreground "${TRIAL_SECONDS:-90}" "$python" train.py "${options[@]}" --start "$start" --images "$1" --mask-rows "$(masks "$1")" \
    --steps "${TRIAL_STEPS:-75}" --minutes "${TRIAL_MINUTES:-0.4}" --output "$run.trial" > "$run.trial.log" 2>&1 || true
  { echo "trial of $1 images a step:"; tail -n 3 "$run.trial.log" | cut -c1-400; } >&2
  { grep -o '[0-9.]* images/s' "$run.trial.log" || echo 0; } | tail -n 1 | awk '{ printf "%d\n", 10 * $1 }'
}

mkdir -p "$(dirname "$run")"
if [ "$part" = 1 ]; then
  images="" best=0
  for size in ${SIZES:-128 256}; do
    speed=$(try "$size")
    echo "$size images a step: $speed images in ten seconds"
    # Larger batches only if the device is idle with smaller ones: steps are worth more than images.
    if [ -z "$images" ] || [ "$speed" -gt $((best * 3 / 2)) ]; then images=$size best=$speed; fi
  done
  if [ "$best" = 0 ]; then echo "error: no trial got anywhere: see above" >&2; exit 1; fi
  rm -rf "$run" "$run.trial"
  from=(--start "$start")
else
  images=$(cat "${back:?folder of the part before}/pictures.txt")
  from=(--resume-portable "$back/portable")
  # A machine that is still the same one has everything, to the bit.
  if [ -f "$run/checkpoint.pt" ]; then from=(--resume); fi
fi
echo "$images" > "$target/pictures.txt"
echo "part $part: ${from[*]}, $images images a step, $minutes of $whole minutes"
"$python" train.py "${options[@]}" "${from[@]}" --images "$images" --mask-rows "$(masks "$images")" \
  --portable --minutes "$minutes" --schedule-minutes "$whole" --output "$run"
if [ "$part" -lt 3 ]; then
  mkdir -p "$target/portable"
  cp "$run"/portable/* "$target/portable/"
  exit
fi
mkdir -p "$target/model"
cp "$run"/model/* "$target/model/"
if [ -f "$run/curves.csv" ]; then cp "$run/curves.csv" "$target/"; fi
# First figures, where there is time; those of the card are measured at home, on the CPU.
if timeout "${MEASURE_SECONDS:-170}" "$python" evaluate.py --device "$device" --threads 8 --model "$run/model" \
  --count "${COUNT:-300}" --output "$run/evaluation"; then
  cp "$run/evaluation/figures.json" "$target/"
fi
