"""The built-in model's sizes, and the wrapper that trains it.

The model itself is `transformers`' `Sam3Model`, unchanged. The wrapper adds two auxiliary classifiers that exist in
training only and adds nothing to the checkpoint: they ask every image token which of the 80 things it belongs to,
before and after the fusion with the words, which is what makes so small a model learn within an hour or two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import Sam3Config, Sam3Model
from transformers.models.sam3.modeling_sam3 import Sam3MaskDecoderOutput

from tokenizer import CONTEXT
from vocabulary import NAMES

IMAGE_SIZE, PATCH_SIZE = 224, 14
WIDTH, QUERIES = 128, 40


def configuration(vocabulary_size: int) -> Sam3Config:
    """The architecture of the built-in model: 7.7 million parameters."""
    grid = IMAGE_SIZE // PATCH_SIZE
    shared = dict(hidden_size=WIDTH, num_attention_heads=4)
    return Sam3Config(
        vision_config=dict(
            backbone_config=dict(
                model_type="sam3_vit_model", hidden_size=192, intermediate_size=768, num_hidden_layers=6,
                num_attention_heads=3, image_size=IMAGE_SIZE, pretrain_image_size=IMAGE_SIZE, patch_size=PATCH_SIZE,
                window_size=8, global_attn_indexes=[2, 5],
            ),
            fpn_hidden_size=WIDTH, backbone_feature_sizes=[[4 * grid] * 2, [2 * grid] * 2, [grid] * 2],
        ),
        text_config=dict(
            vocab_size=vocabulary_size, hidden_size=WIDTH, intermediate_size=4 * WIDTH, num_hidden_layers=2,
            num_attention_heads=4, max_position_embeddings=CONTEXT, projection_dim=WIDTH, bos_token_id=0,
            eos_token_id=1, pad_token_id=1,
        ),
        geometry_encoder_config=dict(shared, num_layers=1, intermediate_size=512),
        detr_encoder_config=dict(shared, num_layers=2, intermediate_size=512, dropout=0.0),
        detr_decoder_config=dict(shared, num_layers=3, intermediate_size=512, num_queries=QUERIES, dropout=0.0),
        mask_decoder_config=shared,
    )


@dataclass
class Exemplars:
    """Boxes shown in place of, or beside, a phrase.

    `boxes` [R, 2, 4] cxcywh in 0..1, `valid` [R, 2] bool, `labels` [R, 2] (1 wanted, 0 unwanted).
    """

    boxes: Tensor
    valid: Tensor
    labels: Tensor


@dataclass
class Outputs:
    """What a training step looks at; B pictures, R prompts, L decoder layers, Q queries, P the grid.

    `token_classes` [B, 81, P, P] (0: nothing), `token_match` [R, P, P], `boxes` [L, R, Q, 4] cxcywh in 0..1,
    `logits` [L, R, Q], `presence` [L, R, 1], `masks` of the last layer where they were asked for.
    """

    token_classes: Tensor
    token_match: Tensor
    boxes: Tensor
    logits: Tensor
    presence: Tensor
    masks: Sam3MaskDecoderOutput | None


class TrainingModel(nn.Module):
    """`Sam3Model` with its auxiliary classifiers."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.detector = Sam3Model(configuration(tokenizer.get_vocab_size()))
        self.name_projection = nn.Linear(WIDTH, WIDTH)
        self.token_match = nn.Linear(WIDTH, 1)
        self.nothing = nn.Parameter(torch.zeros(1))
        self.log_scale = nn.Parameter(torch.tensor(2.0))
        names = [tokenizer.encode(name) for name in NAMES]
        self.register_buffer("name_ids", torch.tensor([name.ids for name in names]))
        self.register_buffer("name_mask", torch.tensor([name.attention_mask for name in names]))
        self.spread_reference_points()

    @torch.no_grad()
    def spread_reference_points(self) -> None:
        """Starts the queries on a regular grid of quarter-size boxes."""
        weight = self.detector.detr_decoder.reference_points.weight
        side = math.ceil(math.sqrt(QUERIES))
        for query in range(QUERIES):
            x, y = (query % side + 0.5) / side, (query // side + 0.5) / side
            box = torch.tensor([x, min(y, 0.98), 0.25, 0.25]).clamp(0.02, 0.98)
            weight[query] = torch.log(box / (1 - box))

    def text(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Text features [R, context, width]."""
        return self.detector.get_text_features(input_ids=ids, attention_mask=mask).pooler_output

    def classify_tokens(self, features: Tensor) -> Tensor:
        """Which name every image token [B, width, P, P] belongs to, by cosine with the names' mean text features."""
        mask = self.name_mask[..., None]
        pooled = (self.text(self.name_ids, self.name_mask) * mask).sum(1) / mask.sum(1)
        tokens = F.normalize(features.float(), dim=1)
        names = F.normalize(self.name_projection(pooled).float(), dim=1)
        similarity = torch.einsum("bchw,kc->bkhw", tokens, names) * self.log_scale.exp() * 1.5
        nothing = self.nothing.view(1, 1, 1, 1).expand(similarity.shape[0], 1, *similarity.shape[2:])
        return torch.cat([nothing, similarity], 1)

    def image_prompts(self, features: Tensor, position: Tensor, image_of: Tensor,
                      exemplars: Exemplars | None) -> tuple[Tensor, Tensor]:
        """Geometry features and mask for each prompt: exemplars and the CLS token, or the CLS token alone."""
        features = features.float()
        position = position.float().expand(features.shape[0], -1, -1, -1)
        if exemplars is None:
            count = features.shape[0]
            out = self.detector.geometry_encoder(
                box_embeddings=torch.zeros(count, 0, 4), box_mask=torch.zeros(count, 0, dtype=torch.bool),
                box_labels=torch.zeros(count, 0, dtype=torch.long), img_feats=[features], img_pos_embeds=[position],
            )
            return out.last_hidden_state[image_of], torch.ones(len(image_of), 1, dtype=torch.bool)
        out = self.detector.geometry_encoder(
            box_embeddings=exemplars.boxes, box_mask=exemplars.valid, box_labels=exemplars.labels,
            img_feats=[features[image_of]], img_pos_embeds=[position[image_of]],
        )
        return out.last_hidden_state, out.attention_mask.bool()

    def forward(self, pixels: Tensor, ids: Tensor, mask: Tensor, image_of: Tensor, with_masks: bool = False,
                exemplars: Exemplars | None = None) -> Outputs:
        """Pictures [B, 3, S, S] and prompts [R, context], `image_of` [R] saying which picture each prompt asks."""
        detector = self.detector
        vision = detector.vision_encoder(pixels)
        levels, position = list(vision.fpn_hidden_states[:-1]), vision.fpn_position_encoding[-2]
        features = levels[-1]
        with torch.autocast("cpu", enabled=False):
            geometry, geometry_mask = self.image_prompts(features, position, image_of, exemplars)
        prompt = torch.cat([self.text(ids, mask).float(), geometry.float()], 1)
        prompt_mask = torch.cat([mask.bool(), geometry_mask], 1)
        asked = features[image_of]
        encoded = detector.detr_encoder(
            vision_features=[asked], text_features=prompt, text_mask=prompt_mask,
            vision_pos_embeds=[position.expand(pixels.shape[0], -1, -1, -1)[image_of]],
        )
        decoded = detector.detr_decoder(
            vision_features=encoded.last_hidden_state, text_features=prompt, text_mask=prompt_mask,
            vision_pos_encoding=encoded.pos_embeds_flattened, spatial_shapes=encoded.spatial_shapes,
        )
        hidden = decoded.intermediate_hidden_states
        reference = decoded.reference_boxes.clamp(1e-4, 1 - 1e-4)
        boxes = (torch.log(reference / (1 - reference)) + detector.detr_decoder.box_head(hidden)).sigmoid()
        logits = detector.dot_product_scoring(decoder_hidden_states=hidden, text_features=prompt, text_mask=prompt_mask)
        masks = None
        if with_masks:
            masks = detector.mask_decoder(
                decoder_queries=hidden[-1], backbone_features=[level[image_of] for level in levels],
                encoder_hidden_states=encoded.last_hidden_state, prompt_features=prompt, prompt_mask=prompt_mask,
            )
            masks = Sam3MaskDecoderOutput(pred_masks=masks.pred_masks.float(), semantic_seg=masks.semantic_seg.float())
        token_match = self.token_match(encoded.last_hidden_state).squeeze(-1)
        return Outputs(
            token_classes=self.classify_tokens(features).float(),
            token_match=token_match.view(len(image_of), *features.shape[-2:]).float(), boxes=boxes.float(),
            logits=logits.squeeze(-1).float(), presence=decoded.presence_logits.float(), masks=masks,
        )
