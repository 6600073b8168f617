# What the scripts that fill a folder share; sourced, with `name` and `folder` set. Ends the script if the folder is complete.
# Otherwise `folder` is absolute, and `scratch` a folder in it that is removed at the end; the script writes `environment` last.

mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
if [ -s "$folder/environment" ]; then
    printf '%s: %s (present)\n' "$name" "$folder"
    exit 0
fi
scratch=$(mktemp -d "$folder/.fetch.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
