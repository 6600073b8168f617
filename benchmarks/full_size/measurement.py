"""Shared by the peer measurements: machine, memory, percentiles."""

from __future__ import annotations

import platform
import resource
import statistics
from pathlib import Path
from typing import Sequence

import torch
import transformers


def peak_memory_gb() -> float:
    """Peak resident memory of this process in GB (10^9 bytes)."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak * (1 if platform.system() == "Darwin" else 1024) / 1e9, 3)


def processor() -> str:
    """Name of the CPU."""
    info = Path("/proc/cpuinfo")
    names = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")] \
        if info.exists() else []
    return f"{names[0]}, {len(names)} cores" if names else platform.processor() or platform.machine()


def machine(threads: int) -> dict:
    """The machine and the versions behind a measurement."""
    return {"processor": processor(), "system": platform.platform(), "threads": threads,
            "python": platform.python_version(), "torch": torch.__version__, "transformers": transformers.__version__}


def summary(seconds: Sequence[float]) -> dict:
    """n, minimum, median and the 90th and 99th percentile (nearest rank) of some durations, in milliseconds."""
    ordered = sorted(seconds)
    rank = lambda share: ordered[min(len(ordered) - 1, int(share * len(ordered)))]  # noqa: E731
    return {"n": len(ordered), "min_ms": round(1000 * ordered[0], 1), "p50_ms": round(1000 * statistics.median(ordered), 1),
            "p90_ms": round(1000 * rank(0.9), 1), "p99_ms": round(1000 * rank(0.99), 1)}
