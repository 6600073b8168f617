"""The modules of `transformers` behind the memory tracker: `bench memory --peer PYTHON` runs them in turn with
Ocelli's engines.

    peer.py CHECKPOINT INPUTS DTYPE THREADS DEVICE

Each line of stdin is a command, `features`, `step OBJECTS MEMORIES` or `encode OBJECTS`, and is answered with one line of
JSON: milliseconds, those of all cores, the peak memory of this process so far, and the object scores.

The peer is optimised: fused ("sdpa") attention, inference mode, all objects in one call, every constant computed before the
clock starts. bfloat16 is autocast, as Meta runs the tracker.
"""

import sys

import torch
import torch.nn.functional as F
import transformers
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor
from transformers import Sam3TrackerVideoConfig, Sam3TrackerVideoModel
from transformers.models.sam3.modeling_sam3 import Sam3VisionNeck

peer = f"transformers {transformers.__version__}, "
checkpoint, inputs_file, dtype, threads, device = sys.argv[1:]
torch.set_num_threads(int(threads))
torch.set_grad_enabled(False)
torch.set_default_device(device)

config = Sam3TrackerVideoConfig()
config._attn_implementation = "sdpa"
model = Sam3TrackerVideoModel(config, remove_vision_encoder=True).eval()
neck = Sam3VisionNeck(config.vision_config).eval()
with safe_open(checkpoint, framework="pt") as file:
    read = lambda prefix: {name[len(prefix):]: file.get_tensor(name) for name in file.keys() if name.startswith(prefix)}
    loaded = [model.load_state_dict(read("tracker_model."), strict=False), neck.load_state_dict(read("tracker_neck."))]
buffers = {name for name, _ in model.named_buffers()}
assert not loaded[0].unexpected_keys and set(loaded[0].missing_keys) <= buffers, loaded
for module in model.modules():
    if getattr(module, "config", None) is not None:
        assert module.config._attn_implementation in (None, "sdpa"), type(module)

given = load_file(inputs_file, device=device)
decoder, encoder, width, memory = model.mask_decoder, model.memory_encoder, model.hidden_dim, model.mem_dim
decoder.dynamic_multimask_via_stability = False
side = model.prompt_encoder.image_embedding_size[0]
place = encoder.position_encoding((1, memory, side, side), torch.device(device), torch.float32).flatten(2).transpose(1, 2)
image_positions = model.get_image_wide_positional_embeddings()
state: dict[str, Tensor] = {}


def features() -> None:
    (fine, middle, pixel, *_), positions = neck(given["hidden"])
    state.update(high_res_0=decoder.conv_s0(fine), high_res_1=decoder.conv_s1(middle), pixel=pixel, position=positions[2])


def step(count: int, memories: int) -> Tensor:
    """One frame of `count` objects: their object scores."""
    pointers = given["pointers"][:count]
    slots, times = given["slots"][:count, :memories], given["times"][:count, :memories]
    parts, half = width // memory, width // 2
    of_objects = lambda x: x.reshape(count, -1, memory).transpose(0, 1)
    memory_positions = of_objects(place + model.memory_temporal_positional_encoding[times].flatten(2, 3))
    angles = given["offsets"][:count, :, None] / 10000 ** (2 * (torch.arange(half) // 2) / half)
    pointer_positions = model.temporal_positional_encoding_projection_layer(torch.cat([angles.sin(), angles.cos()], -1))
    pointer_positions = of_objects(pointer_positions.repeat_interleave(parts, 1))
    flat = lambda x: x.flatten(2).permute(2, 0, 1).expand(-1, count, -1)
    attended = model.memory_attention(
        current_vision_features=flat(state["pixel"]), current_vision_position_embeddings=flat(state["position"]),
        memory=torch.cat([of_objects(given["bank"][slots]), of_objects(pointers)]),
        memory_posision_embeddings=torch.cat([memory_positions, pointer_positions.to(memory_positions.dtype)]),
        num_object_pointer_tokens=pointers.shape[1] * parts)
    image = attended.reshape(count, side * side, width).transpose(1, 2).reshape(count, width, side, side)
    points, labels = torch.zeros(count, 1, 1, 2), -torch.ones(count, 1, 1, dtype=torch.int64)
    sparse, dense = model.prompt_encoder(points, labels, None, None)
    masks, ious, tokens, score = decoder(
        image_embeddings=image, image_positional_embeddings=image_positions.expand(count, -1, -1, -1),
        sparse_prompt_embeddings=sparse, dense_prompt_embeddings=dense, multimask_output=True,
        high_resolution_features=[state[name].expand(count, -1, -1, -1) for name in ("high_res_0", "high_res_1")])
    best = ious[:, 0].argmax(1)
    each = torch.arange(count)
    present = score[:, 0, 0] > 0
    state["masks"] = torch.where(present[:, None, None], masks[each, 0, best].float(), -1024.0)
    pointer = model.object_pointer_proj(tokens[each, 0, best])
    state["pointer"] = torch.where(present[:, None], pointer, model.no_object_pointer.to(pointer.dtype))
    return score[:, 0, 0].float()


def encode(count: int) -> None:
    masks = F.interpolate(given["masks"][:count, None], size=[16 * side] * 2, mode="bilinear", align_corners=False)
    memories, _ = encoder(state["pixel"], masks.sigmoid() * 20 - 10)
    state["memory"] = memories.flatten(2).transpose(1, 2)
