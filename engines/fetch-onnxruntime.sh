#!/usr/bin/env bash
# Downloads ONNX Runtime's shared library into the setup folder, where the programs search for it:
# ${OCELLI_HOME:-${XDG_DATA_HOME:-~/.local/share}/ocelli}/onnxruntime.
#
# The library is in the wheel that pip downloads, from the index, mirror or proxy that pip is configured for. No Python
# package is installed. If the library is present, the script does nothing and needs no network.
set -euo pipefail

version=1.31.1

fail() {
    printf 'error: cannot fetch ONNX Runtime %s: %s\n' "$version" "$*" >&2
    exit 1
}

if [ -n "${OCELLI_HOME:-}" ]; then
    home=$OCELLI_HOME
elif [ -n "${XDG_DATA_HOME:-}" ]; then
    home=$XDG_DATA_HOME/ocelli
else
    home=${HOME:?HOME is not set}/.local/share/ocelli
fi
folder=$home/onnxruntime

case $(uname -s) in
    Darwin) library=libonnxruntime.$version.dylib ;;
    *) library=libonnxruntime.so.$version ;;
esac

if [ -s "$folder/$library" ]; then
    printf 'ONNX Runtime %s: %s (present)\n' "$version" "$folder/$library"
    exit 0
fi

command -v python3 >/dev/null || fail "python3 is missing; install it (Debian: apt-get install python3 python3-pip)"
python3 -m pip --version >/dev/null 2>&1 || fail "pip is missing; install it (Debian: apt-get install python3-pip)"
mkdir -p "$folder" || fail "cannot create the folder $folder; set OCELLI_HOME to another one"

# On the file system of the destination, so that the last step is a rename.
scratch=$(mktemp -d "$folder/.fetch.XXXXXX")
trap 'rm -rf "$scratch"' EXIT

# The library does not depend on the Python version: if there is no wheel for this machine's Python, the wheel of another
# version has the same library.
downloaded=no
for python_version in "" 3.13 3.12; do
    if python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
        ${python_version:+--python-version "$python_version"} --dest "$scratch" "onnxruntime==$version" \
        2>"$scratch/pip.log"; then
        downloaded=yes
        break
    fi
done
[ "$downloaded" = yes ] || fail "pip download failed: $(grep -v '^$' "$scratch/pip.log" | tail -n 1)"

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
