#!/usr/bin/env bash
# Downloads OpenVINO's shared libraries into the setup folder, where the programs search for them:
# ${OCELLI_HOME:-${XDG_DATA_HOME:-~/.local/share}/ocelli}/openvino.
#
# Usage: fetch-openvino.sh [gpu] [npu]
#
# The libraries are in the wheel that pip downloads (59 MB), from the index, mirror or proxy that pip is configured for. No
# Python package is installed. Of the wheel only what runs ONNX files on the CPU is kept, 94 MB; `gpu` keeps the plugin for
# Intel's GPUs as well (51 MB), and `npu` that for NPUs (11 MB). If the libraries are present, the script does nothing and
# needs no network.
set -euo pipefail

name="OpenVINO" package=openvino version=2026.4.1
. "$(dirname "$0")/from-pypi.sh"

devices=(cpu)
for device in "$@"; do
    case $device in
        gpu | npu) devices+=("$device") ;;
        *) fail "$device is no device with a plugin of its own; expected gpu or npu" ;;
    esac
done

# Written last: what it lists is complete.
present=$folder/complete-$version
missing=no
for device in "${devices[@]}"; do
    grep -qsx "$device" "$present" || missing=yes
done
if [ "$missing" = no ]; then
    printf 'OpenVINO %s: %s (present)\n' "$version" "$folder"
    exit 0
fi

download

# Unpacks the wheel, loads the library and compares the version that it states.
python3 - "$scratch" "$version" "${devices[@]}" <<'PYTHON' || fail "the downloaded wheel cannot be used on this machine"
import ctypes, fnmatch, pathlib, sys, zipfile

scratch, version, devices = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
unpacked = scratch / "unpacked"
unpacked.mkdir()
# With and without the version: libopenvino_c.so.2641, libopenvino_c.2641.dylib.
kept = ["openvino", "openvino_c", "openvino_onnx_frontend", "openvino_ir_frontend", "openvino_auto_plugin"]
patterns = [f"lib{name}.{end}" for name in kept for end in ("so*", "dylib", "[0-9]*.dylib")] + ["libtbb*", "libhwloc*"]
patterns += ["libopenvino_*_cpu_plugin.*"] + [f"libopenvino_intel_{device}_plugin.*" for device in devices]
if "gpu" in devices:
    patterns.append("cache.json")
wheel = next(scratch.glob("openvino-*.whl"))
with zipfile.ZipFile(wheel) as archive:
    if damaged := archive.testzip():
        sys.exit(f"{wheel.name}: {damaged} is corrupt")
    for entry in archive.namelist():
        name = entry.rpartition("/")[2]
        is_library = entry.startswith("openvino/libs/") and any(fnmatch.fnmatch(name, pattern) for pattern in patterns)
        if is_library or (".dist-info/licenses/" in entry and name):
            (unpacked / name).write_bytes(archive.read(entry))

class Version(ctypes.Structure):
    _fields_ = [("build", ctypes.c_char_p), ("description", ctypes.c_char_p)]

library = next((path for path in unpacked.iterdir() if path.name.startswith("libopenvino_c.")), None)
if library is None:
    sys.exit(f"{wheel.name} holds no libopenvino_c")
found = Version()
ctypes.CDLL(str(library)).ov_get_openvino_version(ctypes.byref(found))
build = (found.build or b"none").decode()
if build.split("-")[0] != version:
    sys.exit(f"{library.name} states version {build}, expected {version}")
PYTHON

mv -f "$scratch"/unpacked/* "$folder/"
printf '%s\n' "${devices[@]}" >"$scratch/complete"
# A later call without `gpu` does not remove its plugin.
[ ! -f "$present" ] || cat "$present" >>"$scratch/complete"
mv -f "$scratch/complete" "$present"
printf 'OpenVINO %s: %s\n' "$version" "$folder"
