# `gpu.sh run`: the measurements and their order; step.sh runs a step. Sourced by gpu.sh.

# shellcheck source=step.sh
. "$here/gpu/step.sh"

run() {
  work='' phase=all minutes=0 again=no
  local set=() name
  while [ $# -gt 0 ]; do
    case $1 in
      --again) again=yes; shift; continue ;;
      --work | --phase | --minutes | --programs | --model | --engines | --precisions | --imgsz | --classes | \
        --video-classes | --peers | --rounds | --runs | --seconds | --frames | --peer-device | --engine-options) ;;
      *) wrong "run $1: no such option" ;;
    esac
    [ $# -ge 2 ] || wrong "$1: expected a value"
    case $1 in
      --work) work=$2 ;; --phase) phase=$2 ;; --minutes) minutes=$2 ;; --programs) programs=$2 ;;
      *) name=${1#--}; set+=("${name//-/_}" "$2") ;;
    esac
    shift 2
  done
  [ -n "$work" ] || wrong "run: expected --work DIR for graphs and results"
  [[ $minutes =~ ^[0-9]+(\.[0-9]+)?$ ]] || wrong "--minutes is $minutes: expected a number"
  case " all check model export engines ours peers video trackers report tests " in
    *" $phase "*) ;; *) wrong "--phase $phase: no such phase" ;;
  esac
  for name in $needed; do
    [ -x "$programs/$name" ] || fail "cannot run, $programs/$name: it is not built; make bench-programs"
  done
  mkdir -p "$work"
  work=$(cd "$work" && pwd) programs=$(cd "$programs" && pwd)
  results=$work/run state=$work/state log=$work/log
  mkdir -p "$results" "$state" "$log"
  deadline=$(awk -v m="$minutes" -v now="$SECONDS" 'BEGIN { printf "%d", (m > 0 ? now + 60 * m : 1e9) }')
  postponed=()
  trap 'exit 130' INT TERM
  settings "${set[@]+"${set[@]}"}"
  surroundings
  [ "$again" = no ] || rm -f "$state"/*.failed
  plan
  recognise
  test_programs
  check
  local px
  for px in $imgsz; do
    make_graphs "$px"
    measure "$px"
  done
  trackers
  assemble
  if [ ${#postponed[@]} -gt 0 ]; then
    say "no time was left for ${#postponed[@]} steps; the next call continues with ${postponed[0]}"
  fi
}

# Options of this call override those of earlier calls, which override the defaults.
settings() {
  model=full engines='cuda trt' precisions=fp16 imgsz='' classes='4 16 8 2 1 80' peers=default rounds=2
  video_classes='4 16 1 2 8 80' runs=50 seconds=8 frames=200 peer_device=cuda
  engine_options=
  # shellcheck source=/dev/null
  [ ! -f "$work/settings" ] || . "$work/settings"
  while [ $# -gt 0 ]; do
    printf -v "$1" '%s' "$2"
    shift 2
  done
  declare -p model engines precisions imgsz classes peers rounds video_classes runs seconds frames peer_device engine_options \
    | sed 's/^declare -[^ ]* /declare -g /' >"$work/settings"
  local small=no
  [ "$model" != small ] || small=yes
  [ -n "$imgsz" ] || imgsz=$([ $small = yes ] && echo 224 || echo '1008 672 644')
  [ "$peers" != default ] || peers=$([ $small = yes ] || echo 'compile-f16 eager-f16 compile-bf16 eager-bf16 eager-f32')
  chunk=16
  labels=
  local engine precision
  for precision in $precisions; do
    for engine in $engines; do
      labels+="${labels:+ }$engine-$precision"
    done
  done
}

# Sets the environment: packed libraries, those of the peer's Python, a separate cache.
surroundings() {
  python=${OCELLI_BENCH_PYTHON:-python3}
  local found='' library
  if command -v "$python" >/dev/null; then
    found=$("$python" -c 'import glob, os, site, sys
folders = site.getsitepackages() + [site.getusersitepackages()] + sys.path
print(":".join(sorted({os.path.dirname(f) for p in folders for g in ("/nvidia/*/lib/*.so*", "/tensorrt_libs/*.so*")
    for f in glob.glob(p + g)})))' || true)
  fi
  export LD_LIBRARY_PATH=$home/lib${found:+:$found}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  export PATH=$PATH:/usr/local/nvidia/bin XDG_CACHE_HOME=$work/cache TORCHINDUCTOR_CACHE_DIR=$work/inductor
  for library in "$home"/lib/libonnxruntime.so*; do
    [ ! -f "$library" ] || export OCELLI_ONNXRUNTIME=$library
  done
  OCELLI_BENCH_COMMIT=$(commit)
  export OCELLI_BENCH_COMMIT
  small=$home/model/small
  if [ ! -d "$small" ]; then
    # Beside its work and not in the sources: another run could be reading it there.
    small=$work/built-in
    if [ ! -f "$small/model.safetensors" ]; then
      mkdir -p "$small"
      cp "$home"/src/builtin/{config,tokenizer}.json "$small/"
      cat "$home"/src/builtin/weights-{1,2}/weights.bin >"$small/model.safetensors.new"
      mv "$small/model.safetensors"{.new,}
    fi
  fi
  # Without CLIP's tokenizer, one with a smaller vocabulary will do.
  tokenizer=$home/model/tokenizer.json
  [ -f "$tokenizer" ] || tokenizer=$small/tokenizer.json
  image=$home/model/image.png
  [ -f "$image" ] || image=$home/demos/scenes/park.png
}

plan() {
  [ -f "$work/began" ] || date +%FT%R >"$work/began"
  local kind=$model
  [ "$kind" = small ] || kind=full
  printf '{"began":"%s","model":"%s","engines":[%s],"peers":[%s],"imgsz":[%s],"classes":[%s],"commit":"%s"}\n' \
    "$(cat "$work/began")" "$kind" "$(texts "$labels")" "$(texts "$peers")" "$(numbers "$imgsz")" \
    "$(tr ' ' '\n' <<<"$classes $video_classes" | sort -nu | paste -sd' ' | xargs | tr ' ' ',')" \
    "$OCELLI_BENCH_COMMIT" >"$results/plan.json"
}

texts() { tr -s ' ' '\n' <<<"$1" | sed '/^$/d; s/.*/"&"/' | paste -sd,; }
numbers() { xargs <<<"$1" | tr ' ' ','; }

# Says at once which engines cannot run on the card of this machine; the others are measured all the same.
recognise() {
  declare -gA unable=()
  local gpu name capability engine
  gpu=$(nvidia-smi --query-gpu=name,compute_cap --format=csv,noheader 2>/dev/null | head -n 1 || true)
  name=${gpu%,*} capability=${gpu##*, }
  [ -f "$state/doctor.txt" ] || "$programs/ocelli" doctor >"$state/doctor.txt" 2>&1 || true
  if [[ $capability =~ ^[0-9]+\.[0-9]+$ ]] && grep -q '^  used .*(TensorRT for RTX)$' "$state/doctor.txt"; then
    case $capability in
      7.5 | 8.0 | 8.6 | 8.9 | 12.0 | 12.1) ;;
      *) unable[trt]="TensorRT for RTX has no kernels for compute capability $capability; OCELLI_TENSORRT can name TensorRT 11" ;;
    esac
  fi
  for engine in $engines; do
    [ -z "${unable[$engine]:-}" ] || say "${name:-no GPU that nvidia-smi knows}: $engine cannot run: ${unable[$engine]}"
  done
}

# Probes the engines: no time is spent on one that does not start.
check() {
  local engine probe
  in_phase check || return 0
  [ "$phase" != check ] || rm -f "$state"/probe-*
  if [ "$phase" = check ] || [ ! -f "$results/check.txt" ]; then
    {
      date -u
      uname -srm
      nvidia-smi -L
      "$python" -V
      "$programs/ocelli" doctor
    } >"$results/check.txt" 2>&1 || true
  fi
  for engine in $engines; do
    if [ -n "${unable[$engine]:-}" ]; then
      missing "probe-$engine" "${unable[$engine]}"
      continue
    fi
    probe=("$programs/bench" halves --quiet --class-counts 1 --runs 3 --warm-up 1)
    if [ "$engine" = trt ]; then
      step check probe-graphs 0 '' "$programs/ocelli" export --checkpoint "$small" --output "$work/graphs/probe" \
        --target tensorrt --precision "${precisions%% *}" --detection-only --force
      step check probe-build 0 '' "$programs/ocelli" build-engine --model "$work/graphs/probe" \
        --output "$work/engines/probe" --max-classes 4
      probe+=(--model "$work/graphs/probe")
      works trt || { missing probe-trt "no engine was built"; continue; }
    fi
    # shellcheck disable=SC2046 # split into options
    step check "probe-$engine" 0 '' "${probe[@]}" $(options_of "$engine" "$work/engines/probe")
  done
  [ -z "$peers" ] || step check probe-peer 0 '' "$python" -c 'import sys, torch, transformers
print(torch.__version__, transformers.__version__)
sys.exit(None if sys.argv[1] == "cpu" or torch.cuda.is_available() else "error: torch sees no GPU")' "$peer_device"
  grep -h . "$state"/probe-*.step >>"$results/check.txt" || true
}

# The options that select an engine; $2 is the folder of TensorRT engines.
options_of() {
  if [ "$1" = trt ]; then
    echo "--trt $2/backbone.engine --trt-enc-dec $2/encoder_decoder.engine"
  else
    echo "--engine $1 $engine_options"
  fi
}

# Whether an engine or the peer starts; unknown counts as yes.
works() { [ -z "${unable[$1]:-}" ] && [ ! -e "$state/probe-$1.failed" ] && { [ "$1" != trt ] || [ ! -e "$state/probe-build.failed" ]; }; }

# Makes the checkpoint, graphs, engines and reference of one image size.
make_graphs() {
  local px=$1 precision engine target checkpoint=$model
  case $model in
    small) checkpoint=$small ;;
    full)
      checkpoint=$work/checkpoint
      step model checkpoint 20 '' "$programs/bench" checkpoint --output "$checkpoint" --tokenizer "$tokenizer"
      ;;
  esac
  weights=$checkpoint reference=$work/reference-$px.safetensors
  [ -f "$checkpoint/config.json" ] || return 0
  graphs() {
    step export "export-$1-$2-$px" 15 "ocelli export --imgsz $px --precision $2 --target $1" \
      "$programs/ocelli" export --checkpoint "$checkpoint" --output "$work/graphs/$1-$2-$px" --imgsz "$px" \
      --precision "$2" --target "$1" --detection-only --force
  }
  graphs onnxruntime fp32
  step reference "reference-$px" 20 '' "$programs/bench" halves --quiet --engine cpu --class-counts "${classes%% *}" \
    --runs 1 --warm-up 0 --model "$work/graphs/onnxruntime-fp32-$px" --write-reference "$reference"
  for precision in $precisions; do
    for engine in $engines; do
      works "$engine" || continue
      target=$(target_of "$engine")
      graphs "$target" "$precision"
      if [ "$engine" = trt ] && [ -f "$work/graphs/$target-$precision-$px/model.json" ]; then
        step engines "build-$precision-$px" 60 "ocelli build-engine --imgsz $px --precision $precision" \
          "$programs/ocelli" build-engine --model "$work/graphs/$target-$precision-$px" --max-classes $chunk \
          --output "$work/engines/$precision-$px" --timing-cache "$work/timing-cache"
      fi
    done
  done
}

target_of() { if [ "$1" = cpu ] || [ "$1" = cuda ]; then echo onnxruntime; else echo tensorrt; fi; }

# Measures ours and the peer alternately, the most important configurations first.
measure() {
  local px=$1 round label peer count
  # shellcheck disable=SC2086 # split into numbers
  for round in $(seq "$rounds"); do
    # Later rounds show the variation: one number of classes is enough.
    local counts=$classes
    [ "$round" = 1 ] || counts=${classes%% *}
    for label in $labels; do
      ours halves "halves-$label-$px-$round" "$label" "$px" "$round" --class-counts $counts \
        --runs "$runs" --seconds "$seconds" $(compare)
      ours detect "detect-$label-$px-$round" "$label" "$px" "$round" --class-counts $counts \
        --runs "$runs" --image "$image"
      drawn_video "$label" "$px" "$round" "${video_classes%% *}"
    done
    for peer in $peers; do
      [ "$round" = 1 ] || [ "$peer" = "${peers%% *}" ] || continue
      theirs "$peer" "$px" "$round" "$counts"
    done
  done
  for count in $video_classes; do
    for label in $labels; do
      drawn_video "$label" "$px" 1 "$count"
    done
  done
}

drawn_video() {
  ours video "video-$1-$2-$3-$4" "$1" "$2" "$3" --class-counts "$4" --frames "$frames" --size 1280 720
}

compare() { [ ! -f "$reference" ] || echo "--reference $reference"; }

# ours KIND STEP LABEL PX ROUND ARGUMENTS…: `bench KIND`
ours() {
  local kind=$1 name=$2 label=$3 px=$4 round=$5
  shift 5
  local engine=${label%-*} precision=${label##*-} graphs
  works "$engine" && in_phase "$kind" || return 0
  graphs=$work/graphs/$(target_of "$engine")-$precision-$px
  if [ ! -f "$graphs/model.json" ]; then
    missing "$name" "no graphs, $graphs"
    return 0
  fi
  # shellcheck disable=SC2046 # split into options
  step "$kind" "$name" 30 "\"label\":\"$label\",\"round\":$round" "$programs/bench" "$kind" --quiet \
    $(options_of "$engine" "$work/engines/$precision-$px") --model "$graphs" --class-chunk $chunk "$@"
}

# theirs LABEL PX ROUND CLASSES
theirs() {
  local mode=${1%-*} dtype=${1##*-} px=$2 round=$3 counts=$4 needs=30
  works peer || return 0
  if [ "$mode" != eager ]; then
    needs=90
    # Compiling takes minutes per format: only the first format is measured for every number of classes.
    [ "$1" = "${peers%% *}" ] || counts=${classes%% *}
  fi
  # shellcheck disable=SC2046,SC2086 # split into options and numbers
  step peers "peers-$1-$px-$round" "$needs" "\"round\":$round" "$python" "$here/full_size/gpu_reference.py" \
    --model "$weights" --imgsz "$px" --mode "$mode" --dtype "$dtype" --device "$peer_device" --classes $counts \
    --chunk $chunk --runs "$runs" --seconds "$seconds" --image "$image" $(compare)
}

# The memory trackers of SAM 3 and SAM 3.1 at the released size, for one object and for sixteen; their memories stay on the device.
trackers() {
  local count peer=()
  case " $engines " in *" cuda "*) ;; *) return 0 ;; esac
  [ "$model" != small ] && works cuda || return 0
  works peer && peer=(--peer "$python" --peer-device "$peer_device" --peer-dtypes float32 bfloat16)
  for count in 16 1; do
    step trackers "trackers-$count" 60 '' "$programs/bench" memory --quiet --work "$work/trackers" --engines cuda cuda-fp16 \
      --objects "$count" --memories 7 --runs "$runs" ${peer[@]+"${peer[@]}"}
  done
}

# Packed test programs: the tests that need a GPU, before anything is measured. A program that hangs is ended.
test_seconds=180
gpu_tests='cuda_device:: device_tensors:: gpu_providers:: tensorrt_run:: device_kernels:: device_path:: tensorrt:: on_a_gpu'
test_programs() {
  local program
  in_phase tests && [ -f "$home/COMMIT" ] || return 0
  for program in "$home"/tests/*; do
    # shellcheck disable=SC2086 # split into names
    [ ! -x "$program" ] || step tests "test-$(basename "$program")" 1 '' timeout --kill-after=10 "$test_seconds" "$program" \
      --ignored --test-threads 1 $gpu_tests
  done
  : >"$results/tests.txt"
  for program in "$home"/tests/*; do
    program=$(basename "$program")
    { echo "== $program"; cat "$state/test-$program.out" "$log/test-$program.log"; } >>"$results/tests.txt" 2>/dev/null || true
  done
}
