#!/usr/bin/env python3
"""Runs test programs as on a machine without the libraries of `make setup`.

    python3 tests/without_libraries.py [--only MODULE,MODULE] cargo test --workspace

What `make test` ignores there, by `cfg_attr(without_libraries, ignore = …)`, is skipped; all else has to pass. Nothing is
compiled again, as it would be with the flag itself. The video library, which `make opencv` builds, stays.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

MARK = "cfg_attr(without_libraries"
IGNORED = re.compile(r'cfg_attr\(\s*without_libraries,\s*ignore\s*=\s*"[^"]*"\s*,?\s*\)\]\s*(?:#\[[^\]]*\]\s*)*fn\s+(\w+)')


def module(path: str) -> str:
    """The module of a file of tests, as `cargo test` writes it. The crate `tests` has no folder of that name."""
    return "::".join(Path(path.split("tests/", 1)[-1]).with_suffix("").parts)


def marked(root: Path) -> set[str]:
    """The ends of the marked tests' names: module and function. Tests that a macro writes are of the modules that use it."""
    listed = subprocess.run(["git", "ls-files", "*.rs"], cwd=root, check=True, capture_output=True, text=True)
    texts = {path: (root / path).read_text() for path in listed.stdout.split()}
    found, count = set(), 0
    for path, text in texts.items():
        names = IGNORED.findall(text)
        count += len(re.findall(r"cfg_attr\(\s*without_libraries", text))
        macros = [f"{Path(path).stem}::{name}!(" for name in re.findall(r"macro_rules! (\w+)", text)]
        users = [user for user, used in texts.items() if any(macro in used for macro in macros)] or [path]
        found |= {f"{module(user)}::{name}" for user in users for name in names}
        count += len(names) * (len(users) - 1)
    if not found or len(found) != count:
        sys.exit(f"error: {count} tests are marked with {MARK}, the names of {len(found)} were found")
    return found


def main() -> None:
    ends = marked(Path(__file__).resolve().parent.parent)
    command, only = sys.argv[1:], None
    if command[:1] == ["--only"]:
        only, command = command[1].split(","), command[2:]
    listed = subprocess.run([*command, "--", "--list"], check=True, capture_output=True, text=True).stdout
    tests = [line.removesuffix(": test") for line in listed.splitlines() if line.endswith(": test")]
    chosen = sorted({test for test in tests if only is None or test.split("::")[0] in only})
    skipped = [test for test in chosen if test in ends]
    if not chosen:
        sys.exit("error: no test is in these modules")
    with tempfile.TemporaryDirectory() as empty:
        home = Path(os.environ.get("OCELLI_HOME") or Path.home() / ".local/share/ocelli")
        (Path(empty) / "video").symlink_to(home / "video")
        environment = dict(os.environ, OCELLI_HOME=empty)
        for name in ("OCELLI_ONNXRUNTIME", "ORT_DYLIB_PATH", "OCELLI_OPENVINO", "OCELLI_WEBGPU"):
            environment.pop(name, None)
        # Names are compared whole.
        words = [word for test in skipped for word in ("--skip", test)] + ([] if only is None else chosen)
        print(f"{len(skipped)} of {len(chosen)} tests are skipped", flush=True)
        sys.exit(subprocess.run([*command, "--", "--exact", *words], env=environment).returncode)


if __name__ == "__main__":
    main()
