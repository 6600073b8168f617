"""SAM 3.1's tracker in PyTorch, tests/golden/checkpoints/multiplex_model.py, which stands before this text: `bench memory
--peer PYTHON` runs it in turn with Ocelli's engines. Arguments, commands and answers are those of peer.py.

It is within 1.1e-6 of Meta's modules, with the same number of operations: fused ("sdpa") attention, all buckets in one call.
"""

import sys

from safetensors import safe_open
from safetensors.torch import load_file

peer = ""
checkpoint, inputs_file, dtype, threads, device = sys.argv[1:]
torch.set_num_threads(int(threads))
torch.set_grad_enabled(False)
torch.set_default_device(device)

given = load_file(inputs_file, device=device)
side = given["hidden"].shape[-1]
with safe_open(checkpoint, framework="pt", device=device) as file:
    names = [name for name in file.keys() if name.startswith((TRACKER, NECK + "propagation_convs"))]
    model = Multiplex({name: file.get_tensor(name) for name in names}, 14 * side)
state = {}


def places(count):
    """Which places of the buckets have one of `count` objects."""
    buckets = -(-count // SLOTS)
    return torch.arange(buckets * SLOTS).view(buckets, SLOTS) < count


def features():
    state.update(model.mux_features(given["hidden"]))


def step(count, memories):
    valid = places(count)
    buckets = len(valid)
    rows = lambda name: given[name][:buckets, :memories]
    result = model.mux_step(
        **{name: state[name] for name in ("query_0", "image_query", "high_res_0", "high_res_1")}, bank=given["bank"],
        images=given["images"], slots=rows("slots"), image_slots=rows("image_slots"), slot_times=rows("times"),
        pointers=given["pointers"][:buckets], pointer_offsets=given["offsets"][:buckets], valid=valid,
        objects=torch.arange(count))
    return result["object_score"].float()


def encode(count):
    valid = places(count)
    order = torch.where(valid, torch.arange(valid.numel()).view_as(valid), 0)
    planes = model.mux_planes(given["masks"][:count])["planes"]
    present = torch.ones(count, dtype=torch.bool)
    state["memory"] = model.mux_memory(state["memory_pixel"], planes, order, valid, present, ~present)
