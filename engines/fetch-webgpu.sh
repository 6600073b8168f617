#!/usr/bin/env bash
# Downloads ONNX Runtime's WebGPU provider into the setup folder, where the programs search for it:
# ${OCELLI_HOME:-${XDG_DATA_HOME:-~/.local/share}/ocelli}/onnxruntime-ep-webgpu.
#
# The library (16 MB) is in the wheel that pip downloads (7 MB). It runs on any GPU with Vulkan, Direct3D 12 or Metal; on
# Linux it needs Vulkan's loader, libvulkan.so.1, and the GPU's driver. If the library is present, the script does nothing
# and needs no network.
set -euo pipefail

name="ONNX Runtime's WebGPU provider" package=onnxruntime-ep-webgpu version=0.4.0
. "$(dirname "$0")/from-pypi.sh"

case $(uname -s) in
    Darwin) library=libonnxruntime_providers_webgpu.dylib ;;
    *) library=libonnxruntime_providers_webgpu.so ;;
esac

if [ -s "$folder/$library" ] && [ "$(cat "$folder/version" 2>/dev/null)" = "$version" ]; then
    printf '%s %s: %s (present)\n' "$name" "$version" "$folder/$library"
    exit 0
fi
download

# Unpacks the wheel and loads the library.
python3 - "$scratch" "$library" <<'PYTHON' || fail "the downloaded wheel cannot be used on this machine"
import ctypes, pathlib, sys, zipfile

scratch, library = pathlib.Path(sys.argv[1]), sys.argv[2]
unpacked = scratch / "unpacked"
unpacked.mkdir()
wheel = next(scratch.glob("onnxruntime_ep_webgpu-*.whl"))
with zipfile.ZipFile(wheel) as archive:
    if damaged := archive.testzip():
        sys.exit(f"{wheel.name}: {damaged} is corrupt")
    for entry in archive.namelist():
        name = entry.rpartition("/")[2]
        if name == library or (".dist-info/licenses/" in entry and name):
            (unpacked / name).write_bytes(archive.read(entry))
if not (unpacked / library).is_file():
    sys.exit(f"{wheel.name} holds no {library}")
if not hasattr(ctypes.CDLL(str(unpacked / library)), "CreateEpFactories"):
    sys.exit(f"{library} is no provider of ONNX Runtime")
PYTHON

mv -f "$scratch"/unpacked/* "$folder/"
# Written last: it says that everything is present.
printf '%s\n' "$version" >"$scratch/version"
mv -f "$scratch/version" "$folder/version"
printf '%s %s: %s\n' "$name" "$version" "$folder/$library"
