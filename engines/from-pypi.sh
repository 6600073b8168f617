# What the scripts that fetch a library from a wheel of PyPI share; sourced, with `name`, `package` and `version` set.
#
# The wheel is what pip downloads, from the index, mirror or proxy that pip is configured for. No Python package is
# installed.

fail() {
    printf 'error: cannot fetch %s %s: %s\n' "$name" "$version" "$*" >&2
    exit 1
}

if [ -n "${OCELLI_HOME:-}" ]; then
    home=$OCELLI_HOME
elif [ -n "${XDG_DATA_HOME:-}" ]; then
    home=$XDG_DATA_HOME/ocelli
else
    home=${HOME:?HOME is not set}/.local/share/ocelli
fi
folder=$home/$package

# Downloads the wheel into the folder $scratch, which is removed at the end.
download() {
    command -v python3 >/dev/null || fail "python3 is missing; install it (Debian: apt-get install python3 python3-pip)"
    python3 -m pip --version >/dev/null 2>&1 || fail "pip is missing; install it (Debian: apt-get install python3-pip)"
    mkdir -p "$folder" || fail "cannot create the folder $folder; set OCELLI_HOME to another one"
    # On the file system of the destination, so that the last step is a rename.
    scratch=$(mktemp -d "$folder/.fetch.XXXXXX")
    trap 'rm -rf "$scratch"' EXIT
    # The libraries do not depend on the Python version: if there is no wheel for this machine's Python, the wheel of
    # another version has the same ones.
    local python_version
    for python_version in "" 3.13 3.12; do
        if python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
            ${python_version:+--python-version "$python_version"} --dest "$scratch" "$package==$version" \
            2>"$scratch/pip.log"; then
            python3 "$(dirname "$0")/check-wheels.py" "$scratch" || fail "its wheel is not the released one"
            return
        fi
    done
    fail "pip download failed: $(grep -v '^$' "$scratch/pip.log" | tail -n 1)"
}
