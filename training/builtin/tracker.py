"""A memory tracker for the built-in model: its sizes, and its steps as the programs run them.

The modules are `transformers`' `Sam3TrackerVideoModel`, unchanged; its neck is the detector's, frozen like the rest of
the detector. The steps here are those of the exported graphs: `track_features`, `track_init`, `track_step` and
`memory_encoder`, for many objects at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import Sam3Model, Sam3TrackerVideoConfig, Sam3TrackerVideoModel

from model import WIDTH, configuration

# The mask logit of an object that is not there, and the range of masks that become memories.
ABSENT, SCALE, BIAS = -1024.0, 20.0, -10.0
# What the reference divides the age of a pointer by.
POINTER_SPAN = 15.0
# The row of a conditioning frame in the table of times.
CONDITIONING = 6
MEMORY_WIDTH = 64


def tracker_configuration(side: int) -> Sam3TrackerVideoConfig:
    """The sizes: 1.5 million parameters without the neck."""
    vision = configuration(512, side).vision_config
    grid = vision.backbone_feature_sizes[-1][0]
    return Sam3TrackerVideoConfig(
        vision_config=vision, image_size=side,
        prompt_encoder_config=dict(hidden_size=WIDTH, image_size=side, patch_size=side // grid),
        mask_decoder_config=dict(hidden_size=WIDTH, mlp_dim=256, iou_head_hidden_dim=64),
        memory_attention_hidden_size=WIDTH, memory_attention_num_layers=2,
        memory_attention_feed_forward_hidden_size=256, memory_attention_rope_feat_sizes=[grid, grid],
        memory_attention_dropout=0.0, memory_attention_rope_dropout=0.0, memory_encoder_hidden_size=WIDTH,
        memory_encoder_output_channels=MEMORY_WIDTH, mask_downsampler_embed_dim=WIDTH, memory_fuser_embed_dim=WIDTH,
        memory_fuser_num_layers=2, memory_fuser_intermediate_dim=256, memory_fuser_layer_scale_init_value=0.1,
    )


@dataclass
class Features:
    """Of n frames: `pixel` [n, D, P, P], `memory_pixel` [n, D, P, P], `query` [n, P*P, D], `fine` [n, D/8, 4P, 4P],
    `middle` [n, D/4, 2P, 2P]."""

    pixel: Tensor
    memory_pixel: Tensor
    query: Tensor
    fine: Tensor
    middle: Tensor

    def of(self, rows: Tensor) -> "Features":
        """Those of some frames, which may repeat."""
        return Features(self.pixel[rows], self.memory_pixel[rows], self.query[rows], self.fine[rows], self.middle[rows])


@dataclass
class Decoded:
    """Of B objects: `masks` [B, 4, 4P, 4P] logits, `ious` [B, 4], `tokens` [B, 4, D], `score` [B] a logit."""

    masks: Tensor
    ious: Tensor
    tokens: Tensor
    score: Tensor

    def best(self) -> tuple[Tensor, Tensor, Tensor]:
        """Mask, IoU and token of the best of the last three."""
        rows, best = torch.arange(len(self.score)), 1 + self.ious[:, 1:].argmax(1)
        return self.masks[rows, best], self.ious[rows, best], self.tokens[rows, best]


@torch.no_grad()
def levels_of(detector: Sam3Model, pixels: Tensor) -> list[Tensor]:
    """The detector's features of images [n, 3, S, S], the finest first: three levels [n, D, h, w]."""
    return [level.float() for level in detector.vision_encoder(pixels).fpn_hidden_states[:3]]


class Tracker(nn.Module):
    """The tracker, with what one frame needs."""

    def __init__(self, side: int) -> None:
        super().__init__()
        sizes = tracker_configuration(side)
        # Plain products are twice as fast as the fused kernels, which are made for longer sequences.
        sizes._attn_implementation = "eager"
        self.modules_of = Sam3TrackerVideoModel(sizes, remove_vision_encoder=True)
        model = self.modules_of
        self.grid = model.prompt_encoder.image_embedding_size[0]
        self.side = side
        attention = model.memory_attention
        tokens = torch.zeros(1, self.grid ** 2, WIDTH)
        self.rotary = attention.rotary_emb(tokens, attention.position_ids)
        sine = model.memory_encoder.position_encoding
        place = sine((1, MEMORY_WIDTH, self.grid, self.grid), tokens.device, tokens.dtype)
        self.register_buffer("memory_places", place.flatten(2).transpose(1, 2), persistent=False)
        whole = sine.__class__(num_position_features=WIDTH // 2, normalize=True)
        place = whole((1, WIDTH, self.grid, self.grid), tokens.device, tokens.dtype)
        self.register_buffer("pixel_places", place.flatten(2).transpose(1, 2), persistent=False)
        self.start()

    @torch.no_grad()
    def start(self) -> None:
        """Values to start from: those of `transformers` are for a longer training."""
        model = self.modules_of
        for module in model.modules():
            if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)):
                module.reset_parameters()
            elif isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
        for table in (model.memory_temporal_positional_encoding, model.no_object_pointer,
                      model.occlusion_spatial_embedding_parameter, model.no_memory_embedding):
            nn.init.normal_(table, std=0.1)
        # Points and pixels have the same positions.
        model.shared_image_embedding.positional_embedding.normal_()
        model.prompt_encoder.shared_embedding.positional_embedding.copy_(
            model.shared_image_embedding.positional_embedding)
        # Masks start undecided.
        for mlp in model.mask_decoder.output_hypernetworks_mlps:
            mlp.proj_out.weight.mul_(0.1)
        # A mask prompt starts as logits.
        model.mask_downsample.weight.fill_(SCALE / 16)
        model.mask_downsample.bias.fill_(BIAS)
        # Memories start as projected features, and are looked up by similarity. The detector's features have a
        # deviation of 4: what is added to them starts as large.
        projection = torch.empty(MEMORY_WIDTH, WIDTH)
        nn.init.orthogonal_(projection)
        encoder = model.memory_encoder
        encoder.projection.weight.copy_(projection[..., None, None])
        encoder.feature_projection.weight.copy_(0.3 * torch.eye(WIDTH)[..., None, None])
        model.prompt_encoder.mask_embed.conv3.weight.mul_(4)
        for layer in model.memory_attention.layers:
            layer.cross_attn_image.k_proj.weight.copy_(projection.T)
            layer.cross_attn_image.o_proj.weight.mul_(3)
            layer.cross_attn_image.q_proj.weight.copy_(torch.eye(WIDTH) + 0.02 * torch.randn(WIDTH, WIDTH))

    def features(self, levels: list[Tensor]) -> Features:
        """What is computed once for a frame."""
        model, decoder = self.modules_of, self.modules_of.mask_decoder
        pixel = levels[2]
        tokens = pixel.flatten(2).transpose(1, 2) + 0.1 * self.pixel_places
        layer = model.memory_attention.layers[0]
        normed = layer.layer_norm1(tokens)[:, None]
        query = tokens + layer.self_attn(normed, normed, normed, self.rotary)[0][:, 0]
        return Features(pixel, model.memory_encoder.feature_projection(pixel), query, decoder.conv_s0(levels[0]),
                        decoder.conv_s1(levels[1]))

    def attend(self, query: Tensor, memories: Tensor, times: Tensor, pointers: Tensor, offsets: Tensor) -> Tensor:
        """Memories [B, M, P*P, 64] with rows of the table of times [B, M], pointers [B, T, D] with their ages [B, T]
        → image tokens as the objects [B, D, P, P]."""
        model, count = self.modules_of, len(query)
        table = model.memory_temporal_positional_encoding[times][:, :, 0]
        places = (self.memory_places[:, None] + table).flatten(1, 2)
        parts, half = WIDTH // MEMORY_WIDTH, WIDTH // 2
        split = pointers.reshape(count, -1, MEMORY_WIDTH)
        periods = 10000 ** (2 * (torch.arange(half) // 2) / half)
        angles = offsets[..., None] / periods
        ages = model.temporal_positional_encoding_projection_layer(torch.cat([angles.sin(), angles.cos()], -1))
        values = torch.cat([memories.flatten(1, 2), split], 1)
        keys = values + torch.cat([places, ages.repeat_interleave(parts, 1)], 1)
        x = query[:, None]
        for index, layer in enumerate(model.memory_attention.layers):
            if index:
                normed = layer.layer_norm1(x)
                x = x + layer.self_attn(normed, normed, normed, self.rotary)[0]
            x = x + layer.cross_attn_image(layer.layer_norm2(x), keys[:, None], values[:, None], self.rotary,
                                           num_k_exclude_rope=split.shape[1])[0]
            x = x + layer.linear2(torch.relu(layer.linear1(layer.layer_norm3(x))))
        x = model.memory_attention.layer_norm(x)[:, 0]
        return x.transpose(1, 2).reshape(count, WIDTH, self.grid, self.grid)

    def decode(self, image: Tensor, frames: Features, prompt: Tensor | None = None) -> Decoded:
        """Image tokens [B, D, P, P] of objects, and a mask prompt [B, 4P, 4P] → masks."""
        model, decoder, count = self.modules_of, self.modules_of.mask_decoder, len(image)
        none = torch.zeros(count, 1, 1, 2), -torch.ones(count, 1, 1, dtype=torch.int32)
        points, dense = model.prompt_encoder(*none, None, None if prompt is None else prompt[:, None])
        own = torch.cat([decoder.obj_score_token.weight, decoder.iou_token.weight, decoder.mask_tokens.weight])
        tokens = torch.cat([own.expand(count, 1, -1, -1), points.float()], 2)
        places = model.get_image_wide_positional_embeddings().expand(count, -1, -1, -1)
        tokens, image = decoder.transformer(tokens, image + dense, places, None)
        image = image.transpose(2, 3).reshape(count, WIDTH, self.grid, self.grid)
        image = decoder.activation(decoder.upscale_layer_norm(decoder.upscale_conv1(image) + frames.middle))
        image = decoder.activation(decoder.upscale_conv2(image) + frames.fine)
        of_masks = tokens[:, 0, 2:6]
        weights = torch.stack([mlp(of_masks[:, index])
                               for index, mlp in enumerate(decoder.output_hypernetworks_mlps)], 1)
        masks = torch.einsum("bkc,bchw->bkhw", weights, image)
        return Decoded(masks.float(), decoder.iou_prediction_head(tokens[:, 0, 1]).float(), of_masks.float(),
                       decoder.pred_obj_score_head(tokens[:, 0, 0])[:, 0].float())

    def pointer(self, token: Tensor, present: Tensor) -> Tensor:
        """The pointers [B, D] of tokens [B, D]."""
        pointer = self.modules_of.object_pointer_proj(token).float()
        return torch.where(present[:, None], pointer, self.modules_of.no_object_pointer)

    def birth(self, frames: Features, masks: Tensor) -> tuple[Tensor, Tensor, Decoded]:
        """Masks [B, 4P, 4P] 0/1 of new objects → memories [B, P*P, 64], pointers [B, D], and the decoder's masks."""
        sure = masks * SCALE + BIAS
        fine = self.enlarged(sure, 16 * self.grid)
        decoded = self.decode(frames.pixel, frames, self.modules_of.mask_downsample((fine > 0).float())[:, 0])
        present = torch.ones(len(masks), dtype=torch.bool)
        # In the programs the decoder may deny a mask that it was given; in training it may not.
        return self.memory(frames, sure, present, True), self.pointer(decoded.tokens[:, 0], present), decoded

    def enlarged(self, masks: Tensor, side: int) -> Tensor:
        """Masks [B, h, w] → [B, 1, side, side]."""
        return F.interpolate(masks[:, None], (side, side), mode="bilinear", align_corners=False)

    def memory(self, frames: Features, masks: Tensor, present: Tensor, binary: bool) -> Tensor:
        """Logits [B, 4P, 4P] → memories [B, P*P, 64]."""
        encoder, fine = self.modules_of.memory_encoder, 16 * self.grid
        if binary:
            hard = (self.enlarged(masks, self.side) > 0).float() * SCALE + BIAS
            masks = F.interpolate(hard, (fine, fine), mode="bilinear", align_corners=False)
        else:
            masks = self.enlarged(masks, fine).sigmoid() * SCALE + BIAS
        fused = encoder.memory_fuser(frames.memory_pixel + encoder.mask_downsampler(masks))
        memory = encoder.projection(fused).flatten(2).transpose(1, 2).float()
        return memory + torch.where(present[:, None, None], 0.0, self.modules_of.occlusion_spatial_embedding_parameter)
