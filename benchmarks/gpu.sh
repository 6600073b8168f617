#!/usr/bin/env bash
# Measures every engine that is there, on a machine with an NVIDIA GPU, beside transformers; see gpu/README.md.
set -euo pipefail

usage() {
  cat <<'HELP'
gpu.sh pack --output DIR    puts programs and scripts into one archive, for a machine without a compiler and a network
  --programs DIR            where the built programs are [default: target/release]
  --test FILE               a test program to take along; may be given several times
  --with FILE[:NAME]        a library to take along, as lib/NAME; may be given several times
  --tokenizer FILE          tokenizer.json of the full-size model, CLIP's say [default: the built-in model's]
  --piece-mb N              cut the archive into pieces of so many MB, a folder each [default: one piece]
  --only-libraries          leave out everything but what --with names: for a second archive that is joined to the first
gpu.sh join --into DIR FOLDER…   collects pieces there, and unpacks when all have come
gpu.sh run --work DIR       measures; what is done is not done again, so it may be stopped and called as often as needed
  --phase NAME              check, model, export, engines, ours, peers, video, report, tests, or all but tests [default: all]
  --minutes M               begin nothing and let nothing run after so many minutes [default: no limit]
  --model full|small|DIR    random weights at full size, the built-in model, or a checkpoint [default: full]
  --engines "NAME…"         cpu, cuda and tensorrt of ONNX Runtime, trt for TensorRT itself [default: cuda tensorrt trt]
  --precisions "NAME…"      number formats of the graphs [default: fp16]
  --imgsz "N…"              sides of the input in pixels [default: 1008 672 644; small: 224]
  --classes "N…"            [default: 4 16 8 2 1 80]
  --video-classes "N…"      [default: 4 16 1 2 8 80]
  --peers "MODE-DTYPE…"     [default: compile-f16 eager-f16 compile-bf16 eager-bf16 eager-f32; small: none]
  --rounds N                measure the first number of classes so often, ours and the peer in turn [default: 2]
  --runs N --seconds S      measured runs, and the longest each may take [default: 50, 8]
  --frames N                of a video [default: 200]
  --engine-options "…"      what else ONNX Runtime's engines are told, --allow-partial say [default: nothing]
  --again                   try again what failed
  --programs DIR            where the built programs are [default: beside this script, or target/release]
The rest of what is told to `run` is remembered in the work folder. OCELLI_BENCH_PYTHON names the peer's Python.
HELP
}

fail() { printf 'error: %s\n' "$*" >&2; exit 1; }
wrong() { printf 'error: %s; gpu.sh --help says more\n' "$*" >&2; exit 2; }
say() { printf '%s\n' "$*" >&2; }

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
home=$(dirname "$here")
programs=$home/programs
[ -d "$programs" ] || programs=${CARGO_TARGET_DIR:-$home/target}/release
needed="ocelli bench-checkpoint bench-halves bench-detect bench-video bench-report"

pack() {
  local output='' tokenizer='' piece_mb=0 only=no tests=() libraries=() name stage
  while [ $# -gt 0 ]; do
    if [ "$1" = --only-libraries ]; then
      only=yes
      shift
      continue
    fi
    [ $# -ge 2 ] || wrong "$1: it needs a value"
    case $1 in
      --output) output=$2 ;; --programs) programs=$2 ;; --tokenizer) tokenizer=$2 ;; --piece-mb) piece_mb=$2 ;;
      --test) tests+=("$2") ;; --with) libraries+=("$2") ;;
      *) wrong "pack $1: no such option" ;;
    esac
    shift 2
  done
  [ -n "$output" ] || wrong "pack: --output DIR says where the archive goes"
  [[ $piece_mb =~ ^[0-9]+$ ]] || wrong "--piece-mb is $piece_mb: expected a number"
  command -v xz >/dev/null || fail "cannot pack, xz: it is not installed (Debian: apt-get install xz-utils)"
  mkdir -p "$output"
  output=$(cd "$output" && pwd)
  stage=$output/stage
  rm -rf "$stage" "$output"/[0-9][0-9][0-9]
  mkdir -p "$stage/lib"
  for name in ${libraries[@]+"${libraries[@]}"}; do
    cp -L "${name%%:*}" "$stage/lib/$(basename "${name#*:}")"
  done
  [ $only = yes ] || stage_programs
  ( cd "$stage" && find . -type f -size +100k -printf '%10s  %P\n' | sort -rn ) >&2
  # The built-in model is in several programs: a window that reaches from one to the next keeps it once.
  tar -C "$stage" --sort=name --owner=0 --group=0 -cf - . | xz --lzma2=preset=6,dict=96MiB >"$output/payload"
  rm -rf "$stage"
  cut_up "$output" "$piece_mb"
}

# Programs, scripts and what they need, into the folder `stage`.
stage_programs() {
  local name
  mkdir -p "$stage"/{programs,benchmarks,model/small,tests}
  for name in $needed; do
    [ -x "$programs/$name" ] || fail "cannot pack, $programs/$name: it is not built; cargo build --release --workspace"
  done
  for name in $needed bench-engine bench-precision bench-track; do
    [ ! -x "$programs/$name" ] || strip -o "$stage/programs/$name" "$programs/$name"
  done
  for name in ${tests[@]+"${tests[@]}"}; do
    strip -o "$stage/tests/$(basename "$name" | sed 's/-[0-9a-f]\{16\}$//')" "$name"
  done
  cp -r "$here/gpu.sh" "$here/gpu" "$here/full_size" "$stage/benchmarks/"
  rm -rf "$stage"/benchmarks/*/__pycache__
  cp "$home"/src/builtin/{config,tokenizer}.json "$stage/model/small/"
  cat "$home"/src/builtin/weights-{1,2}/weights.bin >"$stage/model/small/model.safetensors"
  cp "$home/demos/scenes/park.png" "$stage/model/picture.png"
  [ -z "$tokenizer" ] || cp "$tokenizer" "$stage/model/tokenizer.json"
  commit >"$stage/COMMIT"
}

# A folder for each piece, each with the sums of all.
cut_up() {
  local output=$1 piece_mb=$2 piece number
  cd "$output"
  if [ "$piece_mb" -gt 0 ]; then
    split -b "${piece_mb}000000" -d -a 3 payload payload.
    rm payload
  else
    mv payload payload.000
  fi
  sha256sum payload.[0-9]* >pieces.txt
  for piece in payload.[0-9]*; do
    number=${piece##*.}
    mkdir -p "$number"
    mv "$piece" "$number/"
    cp pieces.txt "$number/"
    printf '%s  %s bytes\n' "$output/$number" "$(stat -c %s "$number/$piece")"
  done
  rm pieces.txt
}

join() {
  local into='' folders=() folder
  while [ $# -gt 0 ]; do
    case $1 in
      --into) [ $# -ge 2 ] || wrong "--into: it needs a folder"; into=$2; shift ;;
      -*) wrong "join $1: no such option" ;;
      *) folders+=("$1") ;;
    esac
    shift
  done
  [ -n "$into" ] || wrong "join: --into DIR says where to"
  mkdir -p "$into/pieces"
  for folder in ${folders[@]+"${folders[@]}"}; do
    cp "$folder"/payload.[0-9]* "$folder/pieces.txt" "$into/pieces/"
  done
  [ -f "$into/pieces/pieces.txt" ] || fail "cannot join, $into/pieces: no piece has come yet"
  local sums missing
  sums=$(cd "$into/pieces" && sha256sum --check pieces.txt 2>/dev/null || true)
  missing=$(grep -cv ': OK$' <<<"$sums" || true)
  if [ "$missing" -gt 0 ]; then
    say "$missing of $(wc -l <"$into/pieces/pieces.txt") pieces are missing or damaged"
    return 0
  fi
  if command -v xz >/dev/null; then
    cat "$into"/pieces/payload.[0-9]* | xz -dc | tar -C "$into" -xf -
  else
    cat "$into"/pieces/payload.[0-9]* | python3 -c 'import sys, tarfile
tarfile.open(fileobj=sys.stdin.buffer, mode="r|xz").extractall(sys.argv[1], filter="tar")' "$into"
  fi
  rm -r "$into/pieces"
  say "all pieces are there: $into/benchmarks/gpu.sh"
}

# The commit that the programs are of, with + where files have changed.
commit() {
  if [ -f "$home/COMMIT" ]; then
    cat "$home/COMMIT"
  elif git -C "$home" rev-parse --short HEAD >/dev/null 2>&1; then
    printf '%s%s\n' "$(git -C "$home" rev-parse --short HEAD)" "$([ -z "$(git -C "$home" status --porcelain)" ] || echo +)"
  else
    echo unknown
  fi
}

case ${1:-} in
  pack) shift; pack "$@" ;;
  join) shift; join "$@" ;;
  run)
    shift
    # shellcheck source=gpu/run.sh
    . "$here/gpu/run.sh"
    run "$@"
    ;;
  -h | --help | help) usage ;;
  *) wrong "${1:-nothing}: expected pack, join or run" ;;
esac
