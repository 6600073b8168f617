#!/usr/bin/env python3
"""Checks every ONNX file under some folders with `onnx.checker`; needs the packages onnx and, to run them, onnxruntime.

    python check_onnx.py FOLDER...             the checker: structure, types, and shapes of standard-operator files
    python check_onnx.py --load FOLDER...      also loads each file into ONNX Runtime on the CPU

Files with operators of ONNX Runtime's own domain are checked without shape inference, which knows nothing of them.
Exports to check come from `ocelli export --checkpoint tests/golden/parity/plain --output DIR`, for either target.
The exit status is 1 where a file fails or a folder holds none.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import onnx


def check(path: Path, load: bool) -> str:
    """Checks one file; says what it is. Raises where it is wrong."""
    model = onnx.load(path, load_external_data=False)
    opsets = {entry.domain or "ai.onnx": entry.version for entry in model.opset_import}
    standard = set(opsets) == {"ai.onnx"}
    # By path, so that weights in a file beside the graph are found and graphs over 2 GB can be checked.
    onnx.checker.check_model(str(path), full_check=standard)
    named = {node.domain or "ai.onnx" for node in model.graph.node}
    if named - set(opsets):
        raise ValueError(f"nodes of domains that are not imported: {sorted(named - set(opsets))}")
    if load:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    kind = "full check" if standard else "check"
    return f"{kind}, {len(model.graph.node)} nodes, " + ", ".join(f"{k} {v}" for k, v in sorted(opsets.items()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path, help="searched for *.onnx at any depth")
    parser.add_argument("--load", action="store_true", help="load each file into ONNX Runtime, too")
    arguments = parser.parse_args()
    failures = 0
    for folder in arguments.folders:
        paths = sorted(folder.rglob("*.onnx"))
        if not paths:
            print(f"FAIL {folder}: no ONNX file in it")
            failures += 1
        for path in paths:
            try:
                print(f"ok   {path}: {check(path, arguments.load)}")
            except Exception as error:  # whatever a checker raises is a failure of the file
                print(f"FAIL {path}: {error}")
                failures += 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
