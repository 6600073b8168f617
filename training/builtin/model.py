"""The sizes of the built-in model, the training wrapper, and the start from existing weights.

The model itself is `transformers`' `Sam3Model`, unchanged. The wrapper adds two auxiliary classifiers that exist in
training only and adds nothing to the checkpoint: they classify every image token by name, before and after the fusion
with the text, so that such a small model learns within an hour or two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import Sam3Config, Sam3Model

from batches import Batch, Exemplars
from tokenizer import CONTEXT
from vocabulary import KNOWN_NAMES

PATCH_SIZE = 14
WIDTH, QUERIES = 128, 40
POSITIONS = "vision_encoder.backbone.embeddings.position_embeddings"
# Only the coarsest level is fused; the finer ones are for masks.
OF_MASKS = ("detector.mask_decoder.", "detector.vision_encoder.neck.fpn_layers.0.",
            "detector.vision_encoder.neck.fpn_layers.1.")
# The supported image sizes: grids of 16, 20 and 24 tokens.
IMAGE_SIZES = (224, 280, 336)


def window_of(grid: int) -> int:
    """Windows of 8 if they divide the grid, else of half the grid, because padded windows train badly."""
    return 8 if grid % 8 == 0 else grid // 2


def configuration(vocabulary_size: int, side: int) -> Sam3Config:
    """The architecture of the built-in model: 7.7 million parameters, for images of `side` pixels."""
    grid = side // PATCH_SIZE
    shared = dict(hidden_size=WIDTH, num_attention_heads=4)
    return Sam3Config(
        vision_config=dict(
            backbone_config=dict(
                model_type="sam3_vit_model", hidden_size=192, intermediate_size=768, num_hidden_layers=6,
                num_attention_heads=3, image_size=side, pretrain_image_size=side, patch_size=PATCH_SIZE,
                window_size=window_of(grid), global_attn_indexes=[2, 5],
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
class Outputs:
    """The outputs used in a training step; B images, R prompts, L decoder layers, Q queries, P the grid.

    `token_classes` [B, 1 + names, P, P] (0: nothing), `cell_classes` [B, 1 + names, 4P, 4P], the same of the finest
    level, `token_match` [R, P, P], `boxes` [L, R, Q, 4] cxcywh in 0..1,
    `logits` [L, R, Q], `presence` [L, R, 1]; the rest feeds the mask head: `queries` [R, Q, D], `levels` of the
    images, `encoded` [R, P*P, D], `prompt` and `prompt_mask`.
    """

    token_classes: Tensor
    cell_classes: Tensor
    token_match: Tensor
    boxes: Tensor
    logits: Tensor
    presence: Tensor
    queries: Tensor
    levels: list[Tensor]
    encoded: Tensor
    prompt: Tensor
    prompt_mask: Tensor


class TrainingModel(nn.Module):
    """`Sam3Model` with its auxiliary classifiers, for the first `names` names."""

    def __init__(self, tokenizer: Tokenizer, side: int, names: int) -> None:
        super().__init__()
        self.side = side
        self.detector = Sam3Model(configuration(tokenizer.get_vocab_size(), side))
        self.name_projection = nn.Linear(WIDTH, WIDTH)
        self.token_match = nn.Linear(WIDTH, 1)
        self.nothing = nn.Parameter(torch.zeros(1))
        self.log_scale = nn.Parameter(torch.tensor(2.0))
        encoded = [tokenizer.encode(name) for name in KNOWN_NAMES[:names]]
        self.register_buffer("name_ids", torch.tensor([name.ids for name in encoded]), persistent=False)
        self.register_buffer("name_mask", torch.tensor([name.attention_mask for name in encoded]), persistent=False)
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

    @torch.no_grad()
    def start_from(self, folder: Path) -> list[str]:
        """Loads the weights of a checkpoint folder; returns notes on tensors that were adapted or not loaded.

        The position table is interpolated if the grid differs. Raises `SystemExit` if the shape of another tensor
        differs.
        """
        weights, own, notes = load_file(folder / "model.safetensors"), self.detector.state_dict(), []
        for name, mine in own.items():
            if name not in weights:
                notes.append(f"{name}: not in the checkpoint, starts afresh")
                continue
            theirs = weights[name].to(mine.dtype)
            if name == POSITIONS and theirs.shape != mine.shape:
                old, new = math.isqrt(theirs.shape[1]), math.isqrt(mine.shape[1])
                table = theirs.view(1, old, old, -1).permute(0, 3, 1, 2)
                table = F.interpolate(table, (new, new), mode="bicubic", align_corners=False)
                theirs = table.permute(0, 2, 3, 1).reshape(mine.shape)
                notes.append(f"{name}: interpolated from a grid of {old} to {new}")
            if theirs.shape != mine.shape:
                raise SystemExit(f"error: {name} is {list(theirs.shape)} in {folder}, {list(mine.shape)} here: "
                                 "start from nothing (--start none), or from a checkpoint of the same sizes")
            mine.copy_(theirs)
        return notes

    def parts(self) -> list[list[nn.Parameter]]:
        """The parameters for detection, those for masks only, and those of the auxiliary classifiers."""
        parts: list[list[nn.Parameter]] = [[], [], []]
        for name, value in self.named_parameters():
            of_masks = name.startswith(OF_MASKS)
            parts[1 if of_masks else 0 if name.startswith("detector.") else 2].append(value)
        return parts

    def text(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Text features [R, context, width]."""
        return self.detector.get_text_features(input_ids=ids, attention_mask=mask).pooler_output

    def classify_places(self, levels: list[Tensor]) -> list[Tensor]:
        """Class scores of every position of each level [B, width, h, w], by cosine with the names' text features."""
        mask = self.name_mask[..., None]
        pooled = (self.text(self.name_ids, self.name_mask) * mask).sum(1) / mask.sum(1)
        names = F.normalize(self.name_projection(pooled).float(), dim=1) * self.log_scale.exp() * 1.5
        classified = []
        for features in levels:
            similarity = torch.einsum("bchw,kc->bkhw", F.normalize(features.float(), dim=1), names).float()
            nothing = self.nothing.view(1, 1, 1, 1).expand(similarity.shape[0], 1, *similarity.shape[2:])
            classified.append(torch.cat([nothing, similarity], 1))
        return classified

    def image_prompts(self, features: Tensor, position: Tensor, image_of: Tensor,
                      exemplars: Exemplars | None) -> tuple[Tensor, Tensor]:
        """Geometry features and mask for each prompt: the CLS token, for some prompts after exemplars."""
        features, device = features.float(), features.device
        position = position.float().expand(features.shape[0], -1, -1, -1)
        count = features.shape[0]
        alone = self.detector.geometry_encoder(
            box_embeddings=torch.zeros(count, 0, 4, device=device),
            box_mask=torch.zeros(count, 0, dtype=torch.bool, device=device),
            box_labels=torch.zeros(count, 0, dtype=torch.long, device=device), img_feats=[features],
            img_pos_embeds=[position],
        ).last_hidden_state[image_of]
        mask = torch.ones(len(image_of), 1, dtype=torch.bool, device=device)
        if exemplars is None:
            return alone, mask
        images = image_of[exemplars.rows]
        shown = self.detector.geometry_encoder(
            box_embeddings=exemplars.boxes, box_mask=exemplars.valid, box_labels=exemplars.labels,
            img_feats=[features[images]], img_pos_embeds=[position[images]],
        )
        # The encoder puts the CLS token into the first free position, which is the first one without boxes.
        wide, wide_mask = F.pad(alone, (0, 0, 0, 2)), F.pad(mask, (0, 2))
        wide = wide.index_copy(0, exemplars.rows, shown.last_hidden_state.to(wide.dtype))
        return wide, wide_mask.index_copy(0, exemplars.rows, shown.attention_mask.bool())

    def forward(self, batch: Batch) -> Outputs:
        """Everything but the masks."""
        detector, image_of, pixels = self.detector, batch.image_of, batch.pixels
        vision = detector.vision_encoder(pixels)
        levels, position = list(vision.fpn_hidden_states[:-1]), vision.fpn_position_encoding[-2]
        features = levels[-1]
        with torch.autocast(pixels.device.type, enabled=False):
            geometry, geometry_mask = self.image_prompts(features, position, image_of, batch.exemplars)
        prompt = torch.cat([self.text(batch.ids, batch.mask).float(), geometry.float()], 1)
        prompt_mask = torch.cat([batch.mask.bool(), geometry_mask], 1)
        encoded = detector.detr_encoder(
            vision_features=[features[image_of]], text_features=prompt, text_mask=prompt_mask,
            vision_pos_embeds=[position.expand(pixels.shape[0], -1, -1, -1)[image_of]],
        )
        decoded = detector.detr_decoder(
            vision_features=encoded.last_hidden_state, text_features=prompt, text_mask=prompt_mask,
            # On the CPU: the decoder reads the grid size, which would synchronise with the device.
            vision_pos_encoding=encoded.pos_embeds_flattened, spatial_shapes=torch.tensor([features.shape[-2:]]),
        )
        hidden = decoded.intermediate_hidden_states
        reference = decoded.reference_boxes.clamp(1e-4, 1 - 1e-4)
        boxes = (torch.log(reference / (1 - reference)) + detector.detr_decoder.box_head(hidden)).sigmoid()
        logits = detector.dot_product_scoring(decoder_hidden_states=hidden, text_features=prompt, text_mask=prompt_mask)
        token_match = self.token_match(encoded.last_hidden_state).squeeze(-1)
        token_classes, cell_classes = self.classify_places([features, levels[0]])
        return Outputs(
            token_classes=token_classes, cell_classes=cell_classes,
            token_match=token_match.view(len(image_of), *features.shape[-2:]).float(), boxes=boxes.float(),
            logits=logits.squeeze(-1).float(), presence=decoded.presence_logits.float(), queries=hidden[-1],
            levels=levels, encoded=encoded.last_hidden_state, prompt=prompt, prompt_mask=prompt_mask,
        )

    def masks(self, outputs: Outputs, image_of: Tensor, rows: Tensor, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Instance masks [M, N, 4P, 4P] of `queries` [M, N] of the prompts `rows` [M], and the semantic ones."""
        width = outputs.queries.shape[-1]
        chosen = outputs.queries[rows].gather(1, queries[..., None].expand(-1, -1, width))
        images = image_of[rows]
        out = self.detector.mask_decoder(
            decoder_queries=chosen, backbone_features=[level[images] for level in outputs.levels],
            encoder_hidden_states=outputs.encoded[rows], prompt_features=outputs.prompt[rows],
            prompt_mask=outputs.prompt_mask[rows],
        )
        return out.pred_masks.float(), out.semantic_seg.float()
