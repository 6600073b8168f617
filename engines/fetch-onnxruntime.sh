#!/usr/bin/env bash
# Downloads ONNX Runtime's shared library into the setup folder, where the programs search for it:
# ${OCELLI_HOME:-${XDG_DATA_HOME:-~/.local/share}/ocelli}/onnxruntime.
#
# The library is in the wheel that pip downloads, from the index, mirror or proxy that pip is configured for. No Python
# package is installed. If the library is present, the script does nothing and needs no network.
set -euo pipefail

name="ONNX Runtime" package=onnxruntime version=1.31.1
. "$(dirname "$0")/from-pypi.sh"

case $(uname -s) in
    Darwin) library=libonnxruntime.$version.dylib ;;
    *) library=libonnxruntime.so.$version ;;
esac

if [ -s "$folder/$library" ]; then
    printf 'ONNX Runtime %s: %s (present)\n' "$version" "$folder/$library"
    exit 0
fi

download

# Unpacks the wheel, loads the library and compares the version that it states.
python3 - "$scratch" "$library" "$version" <<'PYTHON' || fail "the downloaded wheel cannot be used on this machine"
import ctypes, fnmatch, pathlib, sys, zipfile

scratch, library, version = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
wheel = next(scratch.glob("onnxruntime-*.whl"))
with zipfile.ZipFile(wheel) as archive:
    if damaged := archive.testzip():
        sys.exit(f"{wheel.name}: {damaged} is corrupt")
    for entry in archive.namelist():
        name = entry.rpartition("/")[2]
        is_library = entry.startswith("onnxruntime/capi/") and (
            fnmatch.fnmatch(name, "libonnxruntime*.so*") or fnmatch.fnmatch(name, "libonnxruntime*.dylib")
        )
        if is_library or entry in ("onnxruntime/LICENSE", "onnxruntime/ThirdPartyNotices.txt"):
            (scratch / "unpacked").mkdir(exist_ok=True)
            (scratch / "unpacked" / name).write_bytes(archive.read(entry))

class ApiBase(ctypes.Structure):
    _fields_ = [("get_api", ctypes.c_void_p), ("get_version_string", ctypes.CFUNCTYPE(ctypes.c_char_p))]

loaded = ctypes.CDLL(str(scratch / "unpacked" / library))
loaded.OrtGetApiBase.restype = ctypes.POINTER(ApiBase)
found = loaded.OrtGetApiBase().contents.get_version_string().decode()
if found != version:
    sys.exit(f"{library} states version {found}, expected {version}")
PYTHON

# The library is moved last: if it is present, everything is.
for file in "$scratch"/unpacked/*; do
    [ "$(basename "$file")" = "$library" ] || mv -f "$file" "$folder/"
done
mv -f "$scratch/unpacked/$library" "$folder/$library"
printf 'ONNX Runtime %s: %s\n' "$version" "$folder/$library"
