#!/usr/bin/env bash
# Puts NVIDIA's libraries that can be tested without a GPU into a folder: TensorRT for RTX with its ONNX parser, the
# lean runtime of TensorRT, and CUDA's run-time compiler. They come out of the wheels that pip downloads (0.3 GB);
# no Python package is installed. A second run does nothing. Nothing of it is needed to build or to use ocelli.
#
#   bash engines/fetch-nvidia.sh target/nvidia && . target/nvidia/environment
set -euo pipefail

folder=${1:?usage: fetch-nvidia.sh FOLDER}
wheels=(onnxruntime-ep-nv-tensorrt-rtx-cu13==0.5.0 tensorrt-lean-cu13-libs==11.4.0.106 nvidia-cuda-nvrtc==13.5.37)

name="NVIDIA's libraries"
. "$(dirname "$0")/fetch-into.sh"
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
    --platform manylinux_2_28_x86_64 --platform manylinux2014_x86_64 --platform manylinux_2_17_x86_64 \
    --platform manylinux2010_x86_64 --platform manylinux_2_12_x86_64 --dest "$scratch" "${wheels[@]}"
python3 "$(dirname "$0")/check-wheels.py" "$scratch"
python3 - "$scratch" "$folder" <<'PYTHON'
import pathlib, sys, zipfile

scratch, folder = map(pathlib.Path, sys.argv[1:])
wanted = {"libtensorrt_rtx.so": "tensorrt-rtx", "libtensorrt_onnxparser_rtx.so": "tensorrt-rtx",
          "libnvinfer_lean.so": "tensorrt-lean", "libnvrtc.so": "cuda", "libnvrtc-builtins.so": "cuda"}
found = set()
for wheel in scratch.glob("*.whl"):
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.namelist():
            name = entry.rpartition("/")[2]
            stem = name.partition(".so")[0] + ".so"
            if stem in wanted:
                found.add(stem)
                (folder / wanted[stem]).mkdir(exist_ok=True)
                (folder / wanted[stem] / name).write_bytes(archive.read(entry))
if missing := sorted(wanted.keys() - found):
    sys.exit(f"error: the wheels hold no {', '.join(missing)}")
(folder / "environment").write_text(
    f"export OCELLI_TENSORRT='{folder}/tensorrt-rtx'\n"
    f"export OCELLI_TENSORRT_LEAN='{folder}/tensorrt-lean'\n"
    f"export OCELLI_NVRTC='{folder}/cuda'\n"
)
PYTHON
printf "NVIDIA's libraries: %s\n" "$folder"
