#!/usr/bin/env bash
# `ocelli serve` with Chromium, a real Label Studio, promtool and several clients: check.sh OCELLI FOLDER [page|clicks|video|guide|studio|metrics|load…]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
program=$(realpath "$1")
mkdir -p "$2"
folder=$(realpath "$2")
scenes=$here/../golden/scenes
shift 2

start() {
  rm -f "$folder/address"
  "$program" serve --quiet --engine embedded --listen 127.0.0.1:0 "$@" >"$folder/address" &
  server=$!
  trap 'kill $server 2>/dev/null || true' EXIT
  while [ ! -s "$folder/address" ]; do kill -0 $server; sleep 0.1; done
  address=$(cat "$folder/address")
}

stop() {
  kill $server
  wait $server || [ $? = 130 ]
}

# Playwright for a check in Chromium.
browser() {
  [ -d "$folder/node_modules/playwright-core" ] || (cd "$folder" && npm install --silent --no-save playwright-core@1.65.1)
}

# A data set, and a small random model with a tracker.
data_set() {
  rm -rf "$folder/images" "$folder/set"
  mkdir "$folder/images"
  cp "$scenes"/0[0-5].png "$folder/images"
  "$program" label --quiet --engine embedded --model built-in --images "$folder/images" -o "$folder/set" \
    --classes "cake,house,wine glass,tv,bottle,orange" "$@" >/dev/null
}

tracker() {
  rm -rf "$folder/tracker"
  mkdir "$folder/tracker"
  cp "$here"/../golden/parity/tracker/{config.json,model.safetensors,tokenizer.json} "$folder/tracker"
}

page() {
  browser
  data_set
  start --gallery "$folder/set"
  PLAYWRIGHT=$folder node "$here/page.mjs" "$address" "$here/../../demos/scenes/park.png" "$folder"
  stop
}

clicks() {
  browser
  tracker
  data_set --format yolo-seg
  start --model "$folder/tracker" --gallery "$folder/set"
  PLAYWRIGHT=$folder node "$here/clicks.mjs" "$address" "$here/../../demos/scenes/park.png" "$folder"
  stop
}

# A drawn video in the server's folder, and another one to upload.
video() {
  browser
  tracker
  rm -rf "$folder/videos" "$folder/upload.mp4"
  mkdir -p "$folder/videos/street"
  for output in "$folder/videos/street/%03d.png" "$folder/upload.mp4"; do
    "$program" video --quiet --engine embedded --classes dog --scene-size 320x240 --max-frames 40 -o "$output"
  done
  start --model "$folder/tracker" --videos "$folder/videos"
  PLAYWRIGHT=$folder node "$here/video.mjs" "$address" "$folder/upload.mp4" "$folder"
  stop
}

# The requests of the guide with curl. Every one that asks for frames gets some with masks, and a run as many as were pushed.
guide() {
  rm -rf "$folder/guide"
  mkdir -p "$folder/guide/model" "$folder/guide/frames"
  cp "$here"/../golden/parity/tracker/{config.json,model.safetensors,tokenizer.json} "$folder/guide/model"
  for name in street.jpg frames/{1,2,3}.jpg; do cp "$here/../../demos/scenes/street.png" "$folder/guide/$name"; done
  start --model "$folder/guide/model"
  cat >"$folder/guide/requests.sh" <<'END'
curl() {
  local frames most=
  command curl -f "$@" >answer
  case " $* " in
    *"/propagate "*) most=$(grep -o 'frames/[0-9]*.jpg' requests.sh | sort -u | wc -l) ;;&
    *"/prompts "* | *"/propagate "* | *"/results"*)
      frames=$(grep -c '^{"frame":.*"mask"' answer || true)
      [ "$frames" -ge 1 ] && [ "$frames" = "${most:-$frames}" ] || { echo "$frames frames: $*" >&2; return 1; }
      asked=$((${asked:-0} + 1)) ;;
  esac
  cat answer
}
END
  # Blocks of the shell that have curl.
  awk '/^```sh/ { block = ""; inside = 1; next } /^```/ { if (inside && block ~ /curl/) printf "%s", block; inside = 0 } inside { block = block $0 "\n" }' \
    "$here/../../docs/serve.md" | sed "s|http://127.0.0.1:8080|${address%/}|g" >>"$folder/guide/requests.sh"
  echo '[ "$asked" -ge 3 ]' >>"$folder/guide/requests.sh"
  (cd "$folder/guide" && bash -euo pipefail -x requests.sh >answers 2>requests.log) || { cat "$folder/guide/requests.log"; exit 1; }
  stop
}

studio() {
  [ -x "$folder/studio/bin/label-studio" ] ||
    { python3 -m venv "$folder/studio" && "$folder/studio/bin/pip" install -q "label-studio==1.23.2"; }
  tracker
  "$program" video --quiet --engine embedded --classes dog --scene-size 96x72 --max-frames 10 -o "$folder/clip.mp4"
  "$folder/studio/bin/python" "$here/label_studio.py" "$program" "$folder/tracker" "$folder/clip.mp4" "$scenes"/0[0-9].png
}

metrics() {
  start
  for scene in "$scenes"/0[0-3].png; do
    curl -sf "${address}v1/detect" -F "image=@$scene" -F classes=house,tree >/dev/null
  done
  curl -sf "${address}metrics" | promtool check metrics
  stop
}

load() {
  python3 "$here/load.py" "$program" "$scenes" 15
}

for check in "${@:-page clicks video guide studio metrics load}"; do
  for one in $check; do "$one"; done
done
