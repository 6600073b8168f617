"""Time by kind of operator of an exported graph in ONNX Runtime, and its distance from bare matrix products.

usage: profile_onnxruntime.py GRAPH [--classes 4] [--tokens 33] [--threads 2] [--runs 3]
Needs the packages `onnxruntime` and `numpy`. Prints milliseconds and share of each kind of operator of the fastest run, and for
operators that multiply the rate in GFLOP/s; then how long bare products of the same shapes in f32 take, by numpy's BLAS with as many
threads, measured directly afterwards.
"""

import argparse
import collections
import json
import os
import tempfile
import time
from pathlib import Path

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("graph")
parser.add_argument("--classes", type=int, default=4, help="size of the first dimension that is not fixed")
parser.add_argument("--tokens", type=int, default=33, help="size of the others")
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--runs", type=int, default=3)
arguments = parser.parse_args()
os.environ["OPENBLAS_NUM_THREADS"] = str(arguments.threads)

import numpy  # noqa: E402
import onnxruntime  # noqa: E402

TYPES = {"tensor(float)": numpy.float32, "tensor(int64)": numpy.int64, "tensor(bool)": numpy.bool_}
random = numpy.random.default_rng(0)


def value(given) -> numpy.ndarray:
    shape = [
        size if isinstance(size, int) else (arguments.classes if axis == 0 else arguments.tokens)
        for axis, size in enumerate(given.shape)
    ]
    if given.type == "tensor(float)":
        return random.standard_normal(shape, dtype=numpy.float32)
    return numpy.ones(shape, TYPES[given.type])


def shapes(tensors: list) -> list[list[int]]:
    return [shape for tensor in tensors for shape in tensor.values()]


def product(node: dict) -> tuple[int, int, int, int] | None:
    """Batch, rows, columns and depth of a product of two matrices; weights that are packed in advance are not listed."""
    inputs, outputs = shapes(node["input_type_shape"]), shapes(node["output_type_shape"])
    if not ("MatMul" in node["op_name"] or "Gemm" in node["op_name"]) or len(inputs[0]) < 2:
        return None
    out = outputs[0]
    both_vary = len(inputs) > 1 and len(inputs[1]) > 2
    batch = int(numpy.prod(out[:-2], dtype=int)) if both_vary else 1
    rows = int(numpy.prod(out[:-1], dtype=int)) // batch
    elements = int(numpy.prod(inputs[0], dtype=int))
    return batch, rows, out[-1], elements // (batch * rows)


def operations(node: dict) -> int:
    """Multiplications and additions; 0 where they are not counted."""
    inputs, outputs = shapes(node["input_type_shape"]), shapes(node["output_type_shape"])
    if node["op_name"] == "MultiHeadAttention":
        (batch, queries, width), keys = inputs[0], inputs[1][-2]
        return 4 * batch * queries * keys * width
    if node["op_name"] in ("Conv", "FusedConv"):
        return 2 * int(numpy.prod(outputs[0], dtype=int)) * int(numpy.prod(inputs[1][1:], dtype=int))
    found = product(node)
    return 2 * int(numpy.prod(found, dtype=int)) if found else 0


with tempfile.TemporaryDirectory() as folder:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = arguments.threads
    options.enable_profiling = True
    options.profile_file_prefix = str(Path(folder) / "profile")
    session = onnxruntime.InferenceSession(arguments.graph, options, providers=["CPUExecutionProvider"])
    feeds = {given.name: value(given) for given in session.get_inputs()}
    for _ in range(arguments.runs + 1):
        session.run(None, feeds)
    events = json.loads(Path(session.end_profiling()).read_text())

runs, nodes = [], []
for event in events:
    if event["name"].endswith("_kernel_time"):
        nodes.append((event["dur"] / 1e6, event["args"]))
    elif event["name"] == "model_run":
        runs.append((event["dur"] / 1e6, nodes))
        nodes = []
del session
total, nodes = min(runs[1:], key=lambda run: run[0])

kinds, products = collections.defaultdict(lambda: [0.0, 0, 0]), collections.Counter()
for seconds, node in nodes:
    kind = kinds[node["op_name"]]
    kind[0] += seconds
    kind[1] += 1
    kind[2] += operations(node)
    if found := product(node):
        products[found] += 1

print(f"{arguments.graph}, ONNX Runtime {onnxruntime.__version__}, {arguments.threads} threads: {total * 1000:.0f} ms")
print("| operator | ms | share | nodes | GFLOP | GFLOP/s |\n|---|---|---|---|---|---|")
for kind, (seconds, count, work) in sorted(kinds.items(), key=lambda item: -item[1][0]):
    if seconds / total >= 0.005:
        rate = f"{work / 1e9:.0f} | {work / 1e9 / seconds:.0f}" if work else " | "
        print(f"| {kind} | {seconds * 1000:.0f} | {100 * seconds / total:.1f} % | {count} | {rate} |")

bare, work = 0.0, 0
for (batch, rows, columns, depth), count in products.most_common():
    left = random.standard_normal((batch, rows, depth), dtype=numpy.float32)
    right = random.standard_normal((batch, depth, columns), dtype=numpy.float32)
    times = []
    for _ in range(3):
        start = time.perf_counter()
        numpy.matmul(left, right)
        times.append(time.perf_counter() - start)
    bare += count * min(times)
    work += count * 2 * batch * rows * columns * depth
own = sum(seconds for seconds, node in nodes if product(node))
if work:
    rate, everything = work / bare, sum(operations(node) for _, node in nodes)
    print(
        f"\n{work / 1e9:.0f} GFLOP of matrix products: {own:.2f} s in the graph, {work / 1e9 / own:.0f} GFLOP/s; "
        f"bare in f32: {bare:.2f} s, {rate / 1e9:.0f} GFLOP/s.\n"
        f"{everything / 1e9:.0f} GFLOP with attention and convolutions, {everything / rate:.2f} s at the bare rate: "
        f"the graph takes {total * rate / everything:.2f} of that."
    )
