"""The reference pipeline: `transformers` in float32, from an image and text or example boxes to boxes and masks.

The Rust programs are compared with it. Prompts have Meta's official form: the text tokens and the CLS token of the
geometry encoder, which depends on the image only and is computed once for all classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Sequence

import numpy as np
import torch
import torchvision
from PIL import Image
from tokenizers import Tokenizer
from torch import Tensor
from torchvision.transforms.v2 import functional as transforms
from transformers import Sam3Model
from transformers.models.sam3.image_processing_sam3 import Sam3ImageProcessor
from transformers.models.sam3.modeling_sam3 import inverse_sigmoid

import weights

BUILTIN = weights.join().parent


@dataclass
class Found:
    """One detection: index of the prompt, score, box xyxy in pixels, mask [H, W] if requested."""

    class_index: int
    score: float
    box: tuple[float, float, float, float]
    mask: np.ndarray | None = None


@dataclass
class Candidates:
    """The outputs of the decoder for one image, before threshold and NMS.

    `logits` [C, Q] of queries and `presence` [C, 1] of names, `boxes` [C, Q, 4] xyxy relative to the sides, unclipped;
    the rest is for the mask head.
    """

    logits: Tensor
    presence: Tensor
    boxes: Tensor
    queries: Tensor
    encoded: Tensor
    prompt: Tensor
    prompt_mask: Tensor
    levels: list[Tensor]

    @property
    def scores(self) -> Tensor:
        """The scores [C, Q]: the probability of the query times that of the presence of the class."""
        return self.logits.sigmoid() * self.presence.sigmoid()


class ReferenceDetector:
    """A detector with the model of a checkpoint folder."""

    def __init__(self, folder: Path = BUILTIN, device: torch.device = torch.device("cpu")) -> None:
        self.device = device
        self.model = Sam3Model.from_pretrained(folder, dtype=torch.float32).eval().to(device)
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        context = self.model.config.text_config.max_position_embeddings
        end = self.model.config.text_config.eos_token_id
        self.tokenizer.enable_truncation(context)
        self.tokenizer.enable_padding(length=context, pad_id=end, pad_token=self.tokenizer.id_to_token(end))
        side = self.model.config.vision_config.backbone_config.image_size
        self.size = {"height": side, "width": side}
        self.processor = Sam3ImageProcessor(size=self.size)
        self._text: dict[str, tuple[Tensor, Tensor]] = {}

    def pixels(self, image: Image.Image) -> Tensor:
        """Pixel values [1, 3, S, S] as `transformers` prepares them: antialiased bilinear on 8 bits."""
        return self.processor(image.convert("RGB"), return_tensors="pt").pixel_values.to(self.device)

    def pixels_without_rounding(self, image: Image.Image) -> Tensor:
        """The same, resized in floating point, to measure the effect of rounding the resized image to 8 bits."""
        planes = torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1)[None].float()
        resized = transforms.resize(planes, [self.size["height"], self.size["width"]], antialias=True)
        return ((resized / 255 - 0.5) / 0.5).to(self.device)

    def text(self, phrases: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Text features [C, L, D] and masks [C, L], cached by phrase."""
        missing = [phrase for phrase in dict.fromkeys(phrases) if phrase not in self._text]
        if missing:
            encodings = [self.tokenizer.encode(phrase) for phrase in missing]
            ids = torch.tensor([encoding.ids for encoding in encodings], device=self.device)
            mask = torch.tensor([encoding.attention_mask for encoding in encodings], device=self.device)
            features = self.model.get_text_features(input_ids=ids, attention_mask=mask).pooler_output
            self._text.update((phrase, (features[i], mask[i])) for i, phrase in enumerate(missing))
        rows = [self._text[phrase] for phrase in phrases]
        return torch.stack([row[0] for row in rows]), torch.stack([row[1] for row in rows])

    def image_prompt(self, features: Tensor, position: Tensor, count: int, examples: Tensor | None,
                     wanted: Tensor | None) -> tuple[Tensor, Tensor]:
        """The geometry encoder's tokens and mask for each of `count` prompts: its CLS token, and examples before it."""
        boxes = torch.zeros(1, 0, 4) if examples is None else examples
        labels = torch.zeros(boxes.shape[:2], dtype=torch.long) if wanted is None else wanted.long()
        rows = boxes.shape[0]
        out = self.model.geometry_encoder(
            box_embeddings=boxes.to(self.device),
            box_mask=torch.ones(boxes.shape[:2], dtype=torch.bool, device=self.device),
            box_labels=labels.to(self.device), img_feats=[features.expand(rows, -1, -1, -1)],
            img_pos_embeds=[position.expand(rows, -1, -1, -1)],
        )
        tokens = out.last_hidden_state.expand(count, -1, -1)
        return tokens, torch.ones(tokens.shape[:2], dtype=torch.long, device=self.device)

    @torch.no_grad()
    def candidates(self, pixel_values: Tensor, phrases: Sequence[str], examples: Tensor | None = None,
                   wanted: Tensor | None = None) -> Candidates:
        """Runs the model once on one image for all phrases.

        `examples` [C, K, 4], cxcywh relative to the sides, are example boxes for each phrase; `wanted` [C, K] marks
        positive (1) and negative (0) ones.
        """
        model, count = self.model, len(phrases)
        vision = model.vision_encoder(pixel_values)
        levels, position = list(vision.fpn_hidden_states[:-1]), vision.fpn_position_encoding[-2]
        image_prompt, image_mask = self.image_prompt(levels[-1], position, count, examples, wanted)
        text, text_mask = self.text(phrases)
        prompt = torch.cat([text, image_prompt], 1)
        mask = torch.cat([text_mask, image_mask.to(text_mask.dtype)], 1).bool()
        encoded = model.detr_encoder(
            vision_features=[levels[-1].expand(count, -1, -1, -1)], text_features=prompt,
            vision_pos_embeds=[position.expand(count, -1, -1, -1)], text_mask=mask,
        )
        decoded = model.detr_decoder(
            vision_features=encoded.last_hidden_state, text_features=prompt, text_mask=mask,
            vision_pos_encoding=encoded.pos_embeds_flattened, spatial_shapes=encoded.spatial_shapes,
        )
        hidden = decoded.intermediate_hidden_states[-1:]
        offset = model.detr_decoder.box_head(hidden)
        boxes = (inverse_sigmoid(decoded.reference_boxes[-1:]) + offset).sigmoid()[0]
        half = boxes[..., 2:] / 2
        logits = model.dot_product_scoring(decoder_hidden_states=hidden, text_features=prompt, text_mask=mask)
        return Candidates(
            logits=logits[0].squeeze(-1), presence=decoded.presence_logits[-1],
            boxes=torch.cat([boxes[..., :2] - half, boxes[..., :2] + half], -1), queries=hidden[0],
            encoded=encoded.last_hidden_state, prompt=prompt, prompt_mask=mask, levels=levels,
        )

    @torch.no_grad()
    def masks(self, candidates: Candidates, class_index: int, queries: Tensor, height: int, width: int) -> np.ndarray:
        """Masks [K, H, W] bool of some queries of one class: sigmoid, bilinear to the image's size, > 0.5."""
        one = slice(class_index, class_index + 1)
        out = self.model.mask_decoder(
            decoder_queries=candidates.queries[one, queries.to(self.device)], backbone_features=candidates.levels,
            encoder_hidden_states=candidates.encoded[one], prompt_features=candidates.prompt[one],
            prompt_mask=candidates.prompt_mask[one],
        ).pred_masks.sigmoid()
        resized = torch.nn.functional.interpolate(out, size=(height, width), mode="bilinear", align_corners=False)
        return (resized[0] > 0.5).cpu().numpy()

    def select(self, candidates: Candidates, width: int, height: int, threshold: float = 0.3, nms: float = 0.7,
               with_masks: bool = False) -> list[Found]:
        """Detections above the threshold after NMS within a class, with clipped boxes in pixels; best scores first."""
        side = torch.tensor([width, height, width, height], dtype=torch.float32)
        found: list[Found] = []
        for class_index, (scores, boxes) in enumerate(zip(candidates.scores.cpu(), candidates.boxes.cpu())):
            above = torch.nonzero(scores > threshold).flatten()
            clipped = (boxes[above] * side).clamp(min=torch.zeros(4), max=side)
            kept = torchvision.ops.nms(clipped, scores[above], nms)
            masks = None
            if with_masks and len(kept):
                masks = self.masks(candidates, class_index, above[kept], height, width)
            for row, index in enumerate(kept.tolist()):
                found.append(Found(class_index, float(scores[above[index]]), tuple(clipped[index].tolist()),
                                   None if masks is None else masks[row]))
        return sorted(found, key=lambda one: (-one.score, one.class_index))

    def detect(self, image: Image.Image, phrases: Sequence[str], threshold: float = 0.3, nms: float = 0.7,
               with_masks: bool = False) -> list[Found]:
        """Detects in an image with text prompts."""
        candidates = self.candidates(self.pixels(image), phrases)
        return self.select(candidates, image.width, image.height, threshold, nms, with_masks)
