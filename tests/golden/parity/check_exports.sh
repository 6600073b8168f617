#!/usr/bin/env bash
# Exports every golden for both targets, whole, pruned, split, for detection only, in half precision with every set of
# islands and in 8 bits, and checks each file with `onnx.checker`, and with --readers also with rten and tract:
# check_exports.sh OCELLI PYTHON [--readers]. The Python needs `onnx` 1.23.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../../..
ocelli=$1 python=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for config in "$here"/*/config.json; do
  golden=$(dirname "$config")
  name=$(basename "$golden")
  # A block with windowed attention: global blocks cannot be pruned.
  # A screen needs an even number of patches a side.
  read -r windowed patches < <("$python" - "$golden/config.json" <<'END'
import json, sys
config = json.load(open(sys.argv[1]))
vit = config.get("detector_config", config)["vision_config"]["backbone_config"]
windowed = next(i for i in range(vit["num_hidden_layers"]) if i not in vit["global_attn_indexes"])
print(windowed, vit["image_size"] // vit["patch_size"])
END
  )
  for target in onnxruntime tensorrt; do
    export_to() {
      "$ocelli" export --quiet --checkpoint "$golden" --target "$target" --output "$work/$name-$target-$1" "${@:2}" >/dev/null
    }
    export_to whole
    export_to text --prompt text
    export_to boxes --detection-only
    export_to pruned --mask-blocks "$windowed:attn"
    export_to split --split-block 1 --skip-blocks "$windowed"
    for islands in none accumulate accumulate-linear attention; do
      export_to "fp16-$islands" --precision fp16 --mixed-precision "$islands"
    done
    if [ "$target" = tensorrt ]; then export_to fp16-bf16 --precision fp16 --mixed-precision bf16-attention; fi
    export_to fp16-kept --precision fp16 --keep-fp32 "vit.$windowed,fusion,scoring" --split-block 1
    export_to bf16 --precision bf16 --mixed-precision accumulate-linear
    export_to int8 --precision int8
    if [ $((patches % 2)) = 0 ]; then export_to screen --screen; fi
  done
done
"$python" "$here/check_onnx.py" "$work" >"$work/checked" || { grep -v '^ok' "$work/checked"; exit 1; }
echo "onnx.checker accepts $(grep -c '^ok' "$work/checked") files"
if [ "${3:-}" = --readers ]; then
  cargo run --quiet --locked --manifest-path "$root/tests/onnx_readers/Cargo.toml" \
    --target-dir "${CARGO_TARGET_DIR:-$root/target}" -- "$work"
fi
