#!/usr/bin/env bash
# Measures every available engine and transformers on a machine with an NVIDIA GPU; see gpu/README.md.
set -euo pipefail

usage() {
  cat <<'HELP'
gpu.sh pack --output DIR    packs programs and scripts for a machine without compiler and network
  --programs DIR            folder of the built programs [default: target/release]
  --test FILE:NAME          test program to add as tests/NAME; may be repeated
  --with FILE[:NAME]        library to add as lib/NAME; may be repeated
  --tokenizer FILE          tokenizer.json of the full-size model, e.g. CLIP's [default: the built-in model's]
  --piece-mb N              split the archive into pieces of N MB, a folder each [default: one piece]
  --only-libraries          pack only what --with names, as an addition to another archive
gpu.sh join --into DIR FOLDER…   collects pieces, and unpacks them when all are there
gpu.sh run --work DIR       measures; finished steps are skipped, so it can be stopped and repeated
  --phase NAME              tests, check, model, export, engines, ours, peers, video, trackers, report, or all, in this order
                            [default: all]
  --minutes M               stop all steps after M minutes [default: no limit]
  --model full|small|DIR    random weights at full size, the built-in model, or a checkpoint [default: full]
  --engines "NAME…"         cpu and cuda of ONNX Runtime, trt for native TensorRT
                            [default: cuda trt]
  --precisions "NAME…"      number formats of the graphs [default: fp16]
  --imgsz "N…"              sides of the input in pixels [default: 1008 672 644; small: 224]
  --classes "N…"            [default: 4 16 8 2 1 80]
  --video-classes "N…"      [default: 4 16 1 2 8 80]
  --peers "MODE-DTYPE…"     [default: compile-f16 eager-f16 compile-bf16 eager-bf16 eager-f32; small: none]
  --rounds N                rounds for the first number of classes, ours and the peer alternating [default: 2]
  --runs N --seconds S      measured runs, and the maximum time for them [default: 50, 8]
  --frames N                frames of a video [default: 200]
  --engine-options "…"      further options for ONNX Runtime's engines, e.g. --allow-partial [default: none]
  --again                   repeat failed steps
  --programs DIR            folder of the built programs [default: beside this script, or target/release]
Other options of `run` are remembered in the work folder. OCELLI_BENCH_PYTHON is the peer's Python.
HELP
}

fail() { printf 'error: %s\n' "$*" >&2; exit 1; }
wrong() { printf 'error: %s; see gpu.sh --help\n' "$*" >&2; exit 2; }
say() { printf '%s\n' "$*" >&2; }

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
home=$(dirname "$here")
programs=$home/programs
[ -d "$programs" ] || programs=${CARGO_TARGET_DIR:-$home/target}/release
needed="ocelli bench"

pack() {
  local output='' tokenizer='' piece_mb=0 only=no tests=() libraries=() name stage
  while [ $# -gt 0 ]; do
    if [ "$1" = --only-libraries ]; then
      only=yes
      shift
      continue
    fi
    [ $# -ge 2 ] || wrong "$1: expected a value"
    case $1 in
      --output) output=$2 ;; --programs) programs=$2 ;; --tokenizer) tokenizer=$2 ;; --piece-mb) piece_mb=$2 ;;
      --test) tests+=("$2") ;; --with) libraries+=("$2") ;;
      *) wrong "pack $1: no such option" ;;
    esac
    shift 2
  done
  [ -n "$output" ] || wrong "pack: expected --output DIR for the archive"
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
  # Several programs contain the built-in model: a window larger than a program stores it once.
  tar -C "$stage" --sort=name --owner=0 --group=0 -cf - . | xz --lzma2=preset=6,dict=96MiB >"$output/payload"
  rm -rf "$stage"
  cut_up "$output" "$piece_mb"
}

# Copies programs, scripts and their files into the folder `stage`.
stage_programs() {
  local name
  mkdir -p "$stage"/{programs,benchmarks,model/small,tests}
  for name in $needed; do
    [ -x "$programs/$name" ] || fail "cannot pack, $programs/$name: it is not built; make bench-programs"
  done
  for name in $needed; do
    strip -o "$stage/programs/$name" "$programs/$name"
  done
  for name in ${tests[@]+"${tests[@]}"}; do
    [ "${name%:*}" != "$name" ] || fail "cannot pack, --test $name: expected FILE:NAME"
    strip -o "$stage/tests/${name##*:}" "${name%:*}"
  done
  cp -r "$here/gpu.sh" "$here/gpu" "$here/full_size" "$stage/benchmarks/"
  rm -rf "$stage"/benchmarks/*/__pycache__
  cp "$home"/src/builtin/{config,tokenizer}.json "$stage/model/small/"
  cat "$home"/src/builtin/weights-{1,2}/weights.bin >"$stage/model/small/model.safetensors"
  cp "$home/demos/scenes/park.png" "$stage/model/image.png"
  [ -z "$tokenizer" ] || cp "$tokenizer" "$stage/model/tokenizer.json"
  commit >"$stage/COMMIT"
}

# Writes a folder per piece, each with the checksums of all.
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
      --into) [ $# -ge 2 ] || wrong "--into: expected a folder"; into=$2; shift ;;
      -*) wrong "join $1: no such option" ;;
      *) folders+=("$1") ;;
    esac
    shift
  done
  [ -n "$into" ] || wrong "join: expected --into DIR"
  mkdir -p "$into/pieces"
  for folder in ${folders[@]+"${folders[@]}"}; do
    cp "$folder"/payload.[0-9]* "$folder/pieces.txt" "$into/pieces/"
  done
  [ -f "$into/pieces/pieces.txt" ] || fail "cannot join, $into/pieces: there are no pieces"
  local sums missing
  sums=$(cd "$into/pieces" && sha256sum --check pieces.txt 2>/dev/null || true)
  missing=$(grep -cv ': OK$' <<<"$sums" || true)
  if [ "$missing" -gt 0 ]; then
    say "$missing of $(wc -l <"$into/pieces/pieces.txt") pieces are missing or corrupt"
    return 0
  fi
  if command -v xz >/dev/null; then
    cat "$into"/pieces/payload.[0-9]* | xz -dc | tar -C "$into" -xf -
  else
    cat "$into"/pieces/payload.[0-9]* | python3 -c 'import sys, tarfile
tarfile.open(fileobj=sys.stdin.buffer, mode="r|xz").extractall(sys.argv[1], filter="tar")' "$into"
  fi
  rm -r "$into/pieces"
  say "unpacked: $into/benchmarks/gpu.sh"
}

# The commit of the programs, with + if files have changed.
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
