#!/usr/bin/env python3
"""Runs a command and prints one line of JSON: its time and peak memory.

    python measure_command.py NAME COMMAND [ARGUMENT …]

Peak memory is resident memory, mapped files included: for an exporter that maps the checkpoint, the pages it has
read count.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time


def main() -> None:
    name, command = sys.argv[1], sys.argv[2:]
    started = time.perf_counter()
    finished = subprocess.run(command, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(json.dumps({"command": name, "seconds": round(seconds, 2), "peak_memory_mib": round(peak, 1),
                      "status": finished.returncode}), flush=True)
    sys.exit(finished.returncode)


if __name__ == "__main__":
    main()
