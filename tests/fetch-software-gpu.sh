#!/usr/bin/env bash
# Puts a software GPU into a folder: SwiftShader, a Vulkan driver that computes on the CPU, and Vulkan's loader. Both are in
# Debian's package `chromium-common` (32 MB), of which 6 MB are kept; nothing is installed. A second run does nothing. Tests of the engine
# webgpu need it; nothing else does. Debian 12's own software driver (Mesa 22.3) lacks what WebGPU needs.
#
#   bash tests/fetch-software-gpu.sh target/software-gpu && . target/software-gpu/environment
set -euo pipefail

folder=${1:?usage: fetch-software-gpu.sh FOLDER}
name="software GPU"
. "$(dirname "$0")/../engines/fetch-into.sh"
# apt's own user writes there if this runs as root.
chmod 777 "$scratch"
download() { (cd "$scratch" && apt-get download -q chromium-common >/dev/null 2>"$scratch/apt.log"); }
if ! download; then
    # The lists of packages are missing or old.
    [ "$(id -u)" = 0 ] && apt-get update -q >/dev/null && download || {
        printf 'error: cannot fetch the software GPU: %s\n' "$(tail -n 1 "$scratch/apt.log")" >&2
        exit 1
    }
fi
dpkg-deb --fsys-tarfile "$scratch"/chromium-common_*.deb |
    tar -x -C "$scratch" --strip-components=4 --wildcards './usr/lib/chromium/libvk_swiftshader.so' \
        './usr/lib/chromium/vk_swiftshader_icd.json' './usr/lib/chromium/libvulkan.so.1'
mv -f "$scratch"/{libvk_swiftshader.so,vk_swiftshader_icd.json,libvulkan.so.1} "$folder/"
# Written last: it says that everything is present.
cat >"$scratch/environment" <<EOF
export VK_ICD_FILENAMES='$folder/vk_swiftshader_icd.json'
export ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER=1
export LD_LIBRARY_PATH='$folder'\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}
EOF
mv -f "$scratch/environment" "$folder/environment"
printf 'software GPU: %s\n' "$folder"
