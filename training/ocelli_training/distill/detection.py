"""The frozen encoder-decoder, through which the detection loss sees the features."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Sequence

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import Sam3Model
from transformers.models.sam3.modeling_sam3 import inverse_sigmoid

from ..errors import InputError
from .checkpoints import build, load_weights
from .teacher import Teacher

# Parts of a detector that find boxes.
PARTS = ("text_encoder", "text_projection", "geometry_encoder", "detr_encoder", "detr_decoder", "dot_product_scoring")


@dataclass
class Decoded:
    """What the decoder gives for R rows, each an image and a class: `logits` [R, Q], `presence` [R], `boxes` [R, Q, 4] cxcywh."""

    logits: Tensor
    presence: Tensor
    boxes: Tensor


def load_tokenizer(path: Path, context: int, end: int) -> Tokenizer:
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:
        # The tokenizers library raises bare exceptions.
        raise InputError(f"tokenizer: {path} cannot be read: {error}") from error
    token = tokenizer.id_to_token(end)
    if token is None:
        raise InputError(f"tokenizer: {path} has no token {end}, the model's end token")
    tokenizer.enable_truncation(context)
    tokenizer.enable_padding(length=context, pad_id=end, pad_token=token)
    return tokenizer


class DetectionHead(nn.Module):
    """Features of the coarsest level → detections of classes, with the official prompt: text and the image's CLS token."""

    def __init__(self, teacher: Teacher, classes: Sequence[str], tokenizer: Path | None) -> None:
        super().__init__()
        detector = teacher.detector
        model = build(Sam3Model, detector.config)
        for name in PARTS:
            load_weights(getattr(model, name), detector.part(f"{name}."), f"{detector.path}, {name}")
        self.parts = nn.ModuleDict({name: getattr(model, name) for name in PARTS}).eval().requires_grad_(False)
        self.position = teacher.vision.model.neck.position_encoding
        path = tokenizer or detector.folder / "tokenizer.json"
        if not path.is_file():
            raise InputError(f"tokenizer: {path} does not exist; the detection loss needs the detector's tokenizer.json")
        text = detector.config.text_config
        encoded = [load_tokenizer(path, text.max_position_embeddings, text.eos_token_id).encode(name) for name in classes]
        ids, mask = (torch.tensor([getattr(one, kind) for one in encoded]) for kind in ("ids", "attention_mask"))
        with torch.no_grad():
            hidden = self.parts["text_encoder"](input_ids=ids, attention_mask=mask).last_hidden_state
            features = self.parts["text_projection"](hidden)
        self.register_buffer("text", features, persistent=False)
        self.register_buffer("mask", mask.bool(), persistent=False)
        self.classes = list(classes)

    def choose(self, seed: int, step: int, count: int) -> Tensor:
        """The classes of a step [count], which are the same in every process."""
        chosen = random.Random(f"classes/{seed}/{step}").sample(range(len(self.classes)), min(count, len(self.classes)))
        return torch.tensor(sorted(chosen), device=self.text.device)

    def forward(self, features: Tensor, classes: Tensor) -> Decoded:
        """Detections of some classes [K] in the features [B, C, P, P] of B images: B·K rows, images outermost."""
        parts, count = self.parts, len(classes)
        features = features.float()
        position = self.position(features.shape, features.device, features.dtype).expand(features.shape[0], -1, -1, -1)
        images = features.shape[0]
        empty = torch.zeros(images, 0, device=features.device)
        with torch.autocast(features.device.type, enabled=False):
            alone = parts["geometry_encoder"](
                box_embeddings=torch.zeros(images, 0, 4, device=features.device), box_mask=empty.bool(), box_labels=empty.long(),
                img_feats=[features], img_pos_embeds=[position],
            ).last_hidden_state
        rows = torch.arange(images, device=features.device).repeat_interleave(count)
        asked = classes.repeat(images)
        prompt = torch.cat([self.text[asked], alone[rows]], 1)
        mask = torch.cat([self.mask[asked], torch.ones_like(self.mask[asked][:, :1])], 1)
        encoded = parts["detr_encoder"](vision_features=[features[rows]], text_features=prompt, text_mask=mask,
                                        vision_pos_embeds=[position[rows]])
        decoded = parts["detr_decoder"](
            vision_features=encoded.last_hidden_state, text_features=prompt, text_mask=mask,
            vision_pos_encoding=encoded.pos_embeds_flattened, spatial_shapes=torch.tensor([features.shape[-2:]]),
        )
        hidden = decoded.intermediate_hidden_states[-1:]
        with torch.autocast(features.device.type, enabled=False):
            offset = parts["detr_decoder"].box_head(hidden.float())
            boxes = (inverse_sigmoid(decoded.reference_boxes[-1:].float()) + offset).sigmoid()
        logits = parts["dot_product_scoring"](decoder_hidden_states=hidden, text_features=prompt, text_mask=mask)
        return Decoded(logits[0].squeeze(-1).float(), decoded.presence_logits[-1].squeeze(-1).float(), boxes[0].float())
