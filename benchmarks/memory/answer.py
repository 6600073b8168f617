"""Answers commands with the functions `features`, `step` and `encode` of the peer that stands before this text: peer.py or multiplex_peer.py."""

import json
import resource
import sys
import time
from contextlib import nullcontext

wait = torch.cuda.synchronize if device == "cuda" else lambda: None
commands = {"features": features, "step": step, "encode": encode}
autocast = torch.autocast(device, torch.bfloat16) if dtype == "bfloat16" else nullcontext()
print(json.dumps({"name": f"{peer}torch {torch.__version__}, {dtype}"}), flush=True)
with torch.inference_mode(), autocast:
    for line in sys.stdin:
        name, *numbers = line.split()
        start, cpu = time.perf_counter(), time.process_time()
        scores = commands[name](*map(int, numbers))
        wait()
        elapsed, cpu = time.perf_counter() - start, time.process_time() - cpu
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        answer = {"ms": 1e3 * elapsed, "cpu_ms": 1e3 * cpu, "peak_memory_mib": peak, "scores": [] if scores is None else scores.tolist()}
        print(json.dumps(answer), flush=True)
