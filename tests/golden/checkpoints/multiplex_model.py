"""SAM 3.1's tracker in PyTorch: plain functions over a dictionary of weights in the released names.

An independent implementation, without code of Meta's; beside Meta's modules, with random weights in float32, it is within
1.1e-6. Each method of `Multiplex` is one graph of `multiplex/`, with exactly its inputs and outputs.
"""

import math
import torch, torch.nn.functional as F

SLOTS, HEADS, LAYERS, MEMORIES = 16, 8, 4, 7
ABSENT = -1024.0
INTERACTIVE_BIAS = 7.0  # of random weights: both signs of the object score occur
NECK, TRACKER = "detector.backbone.vision_backbone.", "tracker.model."


class Part:
    """A view of the weights below a prefix."""

    def __init__(s, w, at):
        s.w, s.at = w, at

    def __getattr__(s, k):
        return s[k]

    def __getitem__(s, k):
        n = f"{s.at}.{k}" if s.at else str(k)
        return s.w[n] if n in s.w else Part(s.w, n)

    def has(s, k):
        return f"{s.at}.{k}" in s.w


def linear(p, x):
    return F.linear(x, p.weight, p.bias)


def conv(p, x, **k):
    return F.conv2d(x, p.weight, p.bias, **k)


def up(p, x):
    return F.conv_transpose2d(x, p.weight, p.bias, stride=2)


def norm(p, x):
    return F.layer_norm(x, p.weight.shape, p.weight, p.bias, 1e-5)


def norm2(p, x):
    return F.layer_norm(x.permute(0, 2, 3, 1), p.weight.shape, p.weight, p.bias, 1e-6).permute(0, 3, 1, 2)


def mlp(p, x):
    n = sum(p.layers.has(f"{i}.weight") for i in range(9))
    for i in range(n):
        x = linear(p.layers[i], x)
        x = x if i == n - 1 else F.relu(x)
    return x


def heads(x, h):
    return x.unflatten(-1, (h, -1)).transpose(-3, -2)  # [B,n,D] -> [B,h,n,D/h]


def attend(q, k, v):
    return F.scaled_dot_product_attention(q, k, v).transpose(-3, -2).flatten(-2)


def pick(x, best):
    return x.gather(1, best[:, None, None].expand(-1, 1, x.shape[2]))[:, 0]  # [n,k,c], [n] -> [n,c]


def resize(x, n):
    return F.interpolate(x[:, None], size=(n, n), mode="bilinear", align_corners=False)[:, 0]  # upsampling only


def sine_map(P, D):
    """[N,D]: first half y, then x; each sin/cos alternating, positions 1..P over P (+1e-6) of a full turn."""
    t = torch.arange(1, P + 1).float() / (P + 1e-6) * 2 * math.pi
    d = torch.arange(D // 2).float()
    a = t[:, None] / 10000 ** (2 * torch.div(d, 2, rounding_mode="floor") / (D // 2))
    e = torch.stack([a[:, 0::2].sin(), a[:, 1::2].cos()], 2).flatten(1)
    return torch.cat([e[:, None].expand(P, P, -1), e[None].expand(P, P, -1)], 2).reshape(P * P, D)


def sine_line(x, D):
    """[..., D] of an offset: all sines, then all cosines."""
    d = torch.arange(D // 2).float()
    a = x[..., None] / 10000 ** (2 * torch.div(d, 2, rounding_mode="floor") / (D // 2))
    return torch.cat([a.sin(), a.cos()], -1)


def rope_table(P, width):
    """Angles [N, width/2]: x with width/4 frequencies, then y with the same."""
    f = 10000.0 ** (-torch.arange(0, width, 4).float() / width)
    i = torch.arange(P * P)
    return torch.cat([(i % P)[:, None] * f, torch.div(i, P, rounding_mode="floor")[:, None] * f], 1)


def rotate(x, a):
    """Neighbouring pairs are real and imaginary parts; x [B,h,k*N,width] seen as k maps, a [N, width/2]."""
    y = x.unflatten(-2, (-1, a.shape[0]))
    c, s, r, i = a.cos(), a.sin(), y[..., 0::2], y[..., 1::2]
    return torch.stack([r * c - i * s, r * s + i * c], -1).flatten(-2).flatten(2, 3)


class Multiplex:
    def __init__(s, w, image):
        s.w, s.S = {k: v.float() for k, v in w.items() if v.is_floating_point()}, image
        s.t = Part(s.w, TRACKER[:-1])
        s.P = image // 14
        s.N = s.P**2
        s.D = s.t.maskmem_tpos_enc.shape[-1]
        s.sine = sine_map(s.P, s.D)
        s.rope = rope_table(s.P, s.D // HEADS)

    # ------------------------------------------------ once a frame
    def neck(s, which, hidden):
        c = Part(s.w, NECK + which + "_convs")
        x = [up(c["0"].dconv_2x2_1, F.gelu(up(c["0"].dconv_2x2_0, hidden))), up(c["1"].dconv_2x2, hidden), hidden]
        return [conv(c[str(i)].conv_3x3, conv(c[str(i)].conv_1x1, x[i]), padding=1) for i in range(3)]

    def mux_features(s, hidden):
        f = s.neck("propagation", hidden)
        d = s.t.sam_mask_decoder
        image = f[2].flatten(2).transpose(1, 2)
        x = image + 0.1 * s.sine
        l = s.t.transformer.encoder.layers
        return dict(
            high_res_0=conv(d.conv_s0, f[0]),
            high_res_1=conv(d.conv_s1, f[1]),
            image=image,
            memory_pixel=conv(s.t.maskmem_backbone.pix_feat_proj, f[2]),
            query_0=s.self_attention(l["0"], x),
            image_query=torch.cat([linear(l[str(i)].image_cross_attn_q_proj, image) for i in range(LAYERS)]),
        )

    def mux_interactive(s, hidden):
        f = s.neck("interactive", hidden)
        d = s.t.interactive_sam_mask_decoder
        return dict(
            high_res_0=conv(d.conv_s0, f[0]),
            high_res_1=conv(d.conv_s1, f[1]),
            pixel=f[2] + s.t.interactivity_no_mem_embed.view(1, -1, 1, 1),
        )

    # ------------------------------------------------ memory attention
    def self_attention(s, l, x):
        y = norm(l.norm1, x)
        q, k, v = (heads(linear(l[f"self_attn_{n}_proj"], y), HEADS) for n in "qkv")
        return x + linear(l.self_attn_out_proj, attend(rotate(q, s.rope), rotate(k, s.rope), v))

    def attention(s, query_0, image_query, bank, images, slots, image_slots, slot_times, pointers, pointer_offsets):
        """-> [B,N,D]. Keys of a memory: projected image + projected memory + sine code + time row (neither of the last two projected), rotated; keys of a
        pointer: the same with a zero image (so the bias of the image projection stays) and its own time code, not rotated. Values: memory or pointer alone."""
        B, M = slots.shape
        T = pointers.shape[1]
        e = s.t.transformer.encoder
        mem = bank[slots].flatten(1, 2)
        img = images[image_slots].flatten(1, 2)
        pos = (s.sine + s.t.maskmem_tpos_enc[slot_times][:, :, 0]).flatten(1, 2)
        ptr = pointers.reshape(B, T * SLOTS, s.D)
        off = (
            linear(s.t.obj_ptr_tpos_proj, sine_line(pointer_offsets, s.D))[:, :, None]
            .expand(B, T, SLOTS, s.D)
            .reshape(B, T * SLOTS, s.D)
        )
        x = query_0.expand(B, -1, -1)
        for i in range(LAYERS):
            l = e.layers[str(i)]
            x = s.self_attention(l, x) if i else x
            q = image_query[i] + linear(l.cross_attn_q_proj, norm(l.norm2, x))
            k = linear(l.image_cross_attn_k_proj, img) + linear(l.cross_attn_k_proj, mem) + pos
            kp = l.image_cross_attn_k_proj.bias + linear(l.cross_attn_k_proj, ptr) + off
            v = linear(l.cross_attn_v_proj, torch.cat([mem, ptr], 1))
            k = torch.cat([rotate(heads(k, HEADS), s.rope), heads(kp, HEADS)], 2)
            x = x + linear(l.cross_attn_out_proj, attend(rotate(heads(q, HEADS), s.rope), k, heads(v, HEADS)))
            x = x + linear(l.linear2, F.gelu(linear(l.linear1, norm(l.norm3, x))))
        return norm(e.norm, x)

    # ------------------------------------------------ mask decoders (two-way transformer shared by both)
    def two_way(s, d, tokens, src, pe):
        def att(p, q, k, v):
            return linear(
                p.out_proj,
                attend(heads(linear(p.q_proj, q), 8), heads(linear(p.k_proj, k), 8), heads(linear(p.v_proj, v), 8)),
            )

        q, t = tokens, d.transformer
        for i in range(2):
            l = t.layers[str(i)]
            a = q if i == 0 else q + tokens
            y = att(l.self_attn, a, a, q)
            q = norm(l.norm1, y if i == 0 else q + y)  # the first replaces, without position
            q = norm(l.norm2, q + att(l.cross_attn_token_to_image, q + tokens, src + pe, src))
            q = norm(l.norm3, q + linear(l.mlp.lin2, F.relu(linear(l.mlp.lin1, q))))
            src = norm(l.norm4, src + att(l.cross_attn_image_to_token, src + pe, q + tokens, q))
        return norm(t.norm_final_attn, q + att(t.final_attn_token_to_image, q + tokens, src + pe, src)), src

    def upscale(s, d, src, high_res_0, high_res_1):
        x = src.transpose(1, 2).unflatten(2, (s.P, s.P))
        u = d.output_upscaling
        return F.gelu(up(u["3"], F.gelu(norm2(u["1"], up(u["0"], x) + high_res_1))) + high_res_0)

    def gauss(s, g, xy):
        a = (2 * xy - 1) @ g * 2 * math.pi
        return torch.cat([a.sin(), a.cos()], -1)

    def grid(s, g):
        t = (torch.arange(s.P).float() + 0.5) / s.P
        return s.gauss(g, torch.stack([t[None].expand(s.P, s.P), t[:, None].expand(s.P, s.P)], -1)).flatten(0, 1)

    def pointer(s, proj, token, score):
        p = mlp(proj, token)
        return torch.where(score[:, None] > 0, p, linear(s.t.no_obj_ptr_linear, p))

    def mux_step(
        s,
        query_0,
        image_query,
        high_res_0,
        high_res_1,
        bank,
        images,
        slots,
        image_slots,
        slot_times,
        pointers,
        pointer_offsets,
        valid,
        objects,
    ):
        src = s.attention(query_0, image_query, bank, images, slots, image_slots, slot_times, pointers, pointer_offsets)
        return s.decode(src, high_res_0, high_res_1, valid, objects)

    def decode(s, src, high_res_0, high_res_1, valid, objects):
        d, B = s.t.sam_mask_decoder, src.shape[0]
        w = d.mask_tokens.weight.view(SLOTS, 3, -1)
        e = torch.where(valid[..., None], s.t.output_valid_embed, s.t.output_invalid_embed)  # [B,16,D]
        tokens = torch.cat(
            [
                d.obj_score_token.weight.expand(B, -1, -1),
                d.iou_token.weight.expand(B, -1, -1),
                (w + e[:, :, None]).flatten(1, 2),
            ],
            1,
        )
        q, src = s.two_way(d, tokens, src, s.grid(s.t.image_pe_layer.positional_encoding_gaussian_matrix))
        u = s.upscale(d, src, high_res_0, high_res_1)
        bucket = torch.div(objects, SLOTS, rounding_mode="floor")
        score = mlp(d.pred_obj_score_head, q[:, :SLOTS].flatten(0, 1)[objects])[:, 0]
        iou = mlp(d.iou_prediction_head, q[:, SLOTS : 2 * SLOTS].flatten(0, 1)[objects])
        tok = q[:, 2 * SLOTS :].reshape(B * SLOTS, 3, -1)[objects]
        best = iou.argmax(1)
        hyper = pick(torch.stack([mlp(d.output_hypernetworks_mlps[str(i)], tok[:, i]) for i in range(3)], 1), best)
        masks = torch.einsum("nc,nchw->nhw", hyper, u[bucket])
        return dict(
            masks=torch.where(score[:, None, None] > 0, masks, torch.tensor(ABSENT)),
            object_score=score,
            iou=pick(iou[..., None], best)[:, 0],
            pointer=s.pointer(s.t.obj_ptr_proj, pick(tok, best), score),
        )

    def dense(s, mask_prompt=None):
        e = s.t.interactive_sam_prompt_encoder
        if mask_prompt is None:
            return e.no_mask_embed.weight.view(1, -1, 1, 1)
        m = e.mask_downscaling
        return conv(
            m["6"],
            F.gelu(
                norm2(
                    m["4"], conv(m["3"], F.gelu(norm2(m["1"], conv(m["0"], mask_prompt[:, None], stride=2))), stride=2)
                )
            ),
        )

    def prompted(s, pixel, high_res_0, high_res_1, points, labels, dense, multi):
        """SAM's own head, one object a row: prompts as tokens and as a dense map. multi: the best of three and its token; else mask 0 if it is stable, and token 0."""
        t, d, n = s.t, s.t.interactive_sam_mask_decoder, labels.shape[0]
        e = t.interactive_sam_prompt_encoder
        g = e.pe_layer.positional_encoding_gaussian_matrix
        points, labels = (
            torch.cat([points, torch.zeros(n, 1, 2)], 1),
            torch.cat([labels.long(), -torch.ones(n, 1, dtype=torch.long)], 1),
        )  # one empty point at the end
        table = torch.cat([e.not_a_point_embed.weight] + [e.point_embeddings[str(i)].weight for i in range(4)])
        sparse = torch.where((labels < 0)[..., None], 0.0, s.gauss(g, (points + 0.5) / s.S)) + table[labels + 1]
        src = (pixel + dense).flatten(2).transpose(1, 2).expand(n, -1, -1)
        tokens = torch.cat(
            [torch.cat([d.obj_score_token.weight, d.iou_token.weight, d.mask_tokens.weight]).expand(n, -1, -1), sparse],
            1,
        )
        q, src = s.two_way(d, tokens, src, s.grid(g))
        u = s.upscale(d, src, high_res_0, high_res_1)
        tok = q[:, 2:6]
        masks = torch.einsum(
            "nkc,nchw->nkhw", torch.stack([mlp(d.output_hypernetworks_mlps[str(i)], tok[:, i]) for i in range(4)], 1), u
        )
        iou = mlp(d.iou_prediction_head, q[:, 1])
        score = mlp(d.pred_obj_score_head, q[:, 0])[:, 0]
        best = 1 + iou[:, 1:].argmax(1)
        flat = masks.flatten(2)
        top = pick(flat, best).unflatten(1, masks.shape[2:])
        a, b = (masks[:, 0] > 0.05).flatten(1).sum(1).float(), (masks[:, 0] > -0.05).flatten(1).sum(1).float()
        first = (torch.where(b > 0, a / b, 1.0) >= 0.98) & ~torch.as_tensor(multi)
        m, i, k = (
            torch.where(first[:, None, None], masks[:, 0], top),
            torch.where(first, iou[:, 0], pick(iou[..., None], best)[:, 0]),
            torch.where(torch.as_tensor(multi), pick(tok, best), tok[:, 0]),
        )
        return dict(
            masks=torch.where(score[:, None, None] > 0, m, torch.tensor(ABSENT)),
            object_score=score,
            iou=i,
            pointer=s.pointer(t.interactive_obj_ptr_proj, k, score),
        )

    def mux_init(s, pixel, high_res_0, high_res_1, masks):
        """masks [n,16P,16P] 0/1. An empty mask sends the pointer through `no_obj_ptr_linear` (a second time, if the decoder saw nothing either)."""
        n = len(masks)
        p = conv(s.t.interactive_mask_downsample, masks[:, None], stride=4)[:, 0]
        o = s.prompted(
            pixel, high_res_0, high_res_1, torch.zeros(n, 1, 2), -torch.ones(n, 1, dtype=torch.long), s.dense(p), False
        )
        on = masks.flatten(1).amax(1) > 0
        return dict(
            pointer=torch.where(on[:, None], o["pointer"], linear(s.t.no_obj_ptr_linear, o["pointer"])),
            decoder_score=o["object_score"],
        )

    def mux_points(s, pixel, high_res_0, high_res_1, points, labels, mask_prompt=None):
        return s.prompted(pixel, high_res_0, high_res_1, points, labels, s.dense(mask_prompt), labels.shape[1] <= 1)

    # ------------------------------------------------ memory encoder
    def mux_planes(s, masks):
        """Logits [n,4P,4P] of ALL tracked objects of the frame (occluded ones already -10) -> what the memory encoder eats, [n,16P,16P] in -1..1, and the decisions."""
        x = resize(masks, 16 * s.P)
        win = x.argmax(0)
        area = (x > 0).flatten(1).sum(1)
        after = torch.stack([((x[k] > 0) & (win == k)).sum() for k in range(len(x))])
        keep = after.float() / area.clamp(min=1).float() >= 0.3 if len(x) > 1 else torch.ones(1, dtype=torch.bool)
        x = torch.where(keep[:, None, None], x, x.clamp(max=-10))
        return dict(
            planes=x.sigmoid() * 2 - 1, keep=keep, present=(x > 0).flatten(1).any(1), area=area, area_after=after
        )

    def mux_planes_stored(s, masks):
        """Stored masks [n,4P,4P] of ALL objects of ONE state (a birth, a reconditioning, a click): each pixel to the highest, at S."""
        x = resize(masks, s.S)
        w = x.argmax(0)
        x = torch.where(w[None] == torch.arange(len(x))[:, None, None], x, x.clamp(max=-10)) if len(x) > 1 else x
        return dict(planes=resize(x.sigmoid() * 2 - 1, 16 * s.P))

    def mux_memory(s, memory_pixel, planes, order, valid, present, conditional):
        """planes [n,16P,16P]; order i64 [B,16] row of planes for every slot (0 where not valid), valid bool [B,16], present and conditional bool [n] -> [B,N,D] before any rounding."""
        v = valid.float()
        o = order.flatten()
        m = planes[o].unflatten(0, order.shape) * v[..., None, None]
        c = (conditional[order] & valid).float()
        x = torch.cat([m, c[..., None, None].expand_as(m)], 1)
        b = s.t.maskmem_backbone
        e = b.mask_downsampler.encoder
        for i in (0, 3, 6, 9):
            x = F.gelu(norm2(e[str(i + 1)], conv(e[str(i)], x, stride=2, padding=1)))
        x = memory_pixel + conv(e["12"], x)
        for i in range(2):
            l = b.fuser.layers[str(i)]
            y = norm2(l.norm, F.conv2d(x, l.dwconv.weight, l.dwconv.bias, padding=3, groups=s.D)).permute(0, 2, 3, 1)
            x = x + (l.gamma * linear(l.pwconv2, F.gelu(linear(l.pwconv1, y)))).permute(0, 3, 1, 2)
        lost = 1 - (present[order] & valid).float()  # empty and removed slots count as absent too
        return x.flatten(2).transpose(1, 2) + (lost @ s.t.no_obj_embed_spatial)[:, None]


# ---------------------------------------------------------------- random weights in the released names
def shapes(D=256, V=1024, ff=2048, mlp_dim=2048, iou=256, slots=SLOTS):
    """name -> shape; at the defaults exactly the released tracker and its two necks (full31.txt)."""
    z = {}

    def lin(n, i, o):
        z[n + ".weight"] = (o, i)
        z[n + ".bias"] = (o,)

    def cv(n, i, o, k):
        z[n + ".weight"] = (o, i, k, k)
        z[n + ".bias"] = (o,)

    def tr(n, i, o):
        z[n + ".weight"] = (i, o, 2, 2)
        z[n + ".bias"] = (o,)

    def ln(n, d):
        z[n + ".weight"] = (d,)
        z[n + ".bias"] = (d,)

    def ml(n, a, h, b):
        for k, (i, o) in enumerate(((a, h), (h, h), (h, b))):
            lin(f"{n}.layers.{k}", i, o)

    for w in ("interactive", "propagation"):
        n = f"{NECK}{w}_convs."
        tr(n + "0.dconv_2x2_0", V, V // 2)
        tr(n + "0.dconv_2x2_1", V // 2, V // 4)
        tr(n + "1.dconv_2x2", V, V // 2)
        for k, i in enumerate((V // 4, V // 2, V)):
            cv(f"{n}{k}.conv_1x1", i, D, 1)
            cv(f"{n}{k}.conv_3x3", D, D, 3)
    t = TRACKER
    z[t + "maskmem_tpos_enc"] = (MEMORIES, 1, 1, D)
    z[t + "interactivity_no_mem_embed"] = (1, 1, D)
    for n in ("no_obj_embed_spatial", "output_valid_embed", "output_invalid_embed"):
        z[t + n] = (slots, D)
    cv(t + "interactive_mask_downsample", 1, 1, 4)
    for i in range(LAYERS):
        n = f"{t}transformer.encoder.layers.{i}."
        for k in (
            "self_attn_q",
            "self_attn_k",
            "self_attn_v",
            "self_attn_out",
            "cross_attn_q",
            "cross_attn_k",
            "cross_attn_v",
            "cross_attn_out",
            "image_cross_attn_q",
            "image_cross_attn_k",
        ):
            lin(f"{n}{k}_proj", D, D)
        lin(n + "linear1", D, ff)
        lin(n + "linear2", ff, D)
        [ln(f"{n}norm{k}", D) for k in (1, 2, 3)]
    ln(t + "transformer.encoder.norm", D)
    n = t + "maskmem_backbone."
    i = 2 * slots
    for k, o in ((0, 16), (3, 64), (6, 256), (9, 1024)):
        cv(f"{n}mask_downsampler.encoder.{k}", i, o, 3)
        ln(f"{n}mask_downsampler.encoder.{k + 1}", o)
        i = o
    cv(n + "mask_downsampler.encoder.12", 1024, D, 1)
    cv(n + "pix_feat_proj", D, D, 1)
    for k in range(2):
        m = f"{n}fuser.layers.{k}."
        z[m + "gamma"] = (D,)
        z[m + "dwconv.weight"] = (D, 1, 7, 7)
        z[m + "dwconv.bias"] = (D,)
        ln(m + "norm", D)
        lin(m + "pwconv1", D, 4 * D)
        lin(m + "pwconv2", 4 * D, D)
    lin(t + "no_obj_ptr_linear", D, D)
    z[t + "image_pe_layer.positional_encoding_gaussian_matrix"] = (2, D // 2)
    n = t + "interactive_sam_prompt_encoder."
    z[n + "pe_layer.positional_encoding_gaussian_matrix"] = (2, D // 2)
    for k in [f"point_embeddings.{i}" for i in range(4)] + ["not_a_point_embed"]:
        z[f"{n}{k}.weight"] = (1, D)
    cv(n + "mask_downscaling.0", 1, 4, 2)
    ln(n + "mask_downscaling.1", 4)
    cv(n + "mask_downscaling.3", 4, 16, 2)
    ln(n + "mask_downscaling.4", 16)
    cv(n + "mask_downscaling.6", 16, D, 1)
    z[n + "no_mask_embed.weight"] = (1, D)
    for n, one, tok, outs in (("interactive_sam_mask_decoder.", 1, 4, 4), ("sam_mask_decoder.", slots, 3 * slots, 3)):
        n = t + n

        def att(m, h):
            [lin(f"{m}.{k}_proj", D, h) for k in "qkv"]
            lin(m + ".out_proj", h, D)

        for i in range(2):
            m = f"{n}transformer.layers.{i}."
            att(m + "self_attn", D)
            att(m + "cross_attn_token_to_image", D // 2)
            att(m + "cross_attn_image_to_token", D // 2)
            lin(m + "mlp.lin1", D, mlp_dim)
            lin(m + "mlp.lin2", mlp_dim, D)
            [ln(f"{m}norm{k}", D) for k in (1, 2, 3, 4)]
        att(n + "transformer.final_attn_token_to_image", D // 2)
        ln(n + "transformer.norm_final_attn", D)
        z[n + "iou_token.weight"] = z[n + "obj_score_token.weight"] = (one, D)
        z[n + "mask_tokens.weight"] = (tok, D)
        tr(n + "output_upscaling.0", D, D // 4)
        ln(n + "output_upscaling.1", D // 4)
        tr(n + "output_upscaling.3", D // 4, D // 8)
        cv(n + "conv_s0", D, D // 8, 1)
        cv(n + "conv_s1", D, D // 4, 1)
        [ml(f"{n}output_hypernetworks_mlps.{i}", D, D, D // 8) for i in range(outs)]
        ml(n + "iou_prediction_head", D, iou, outs)
        ml(n + "pred_obj_score_head", D, D, 1)
    ml(t + "obj_ptr_proj", D, D, D)
    ml(t + "interactive_obj_ptr_proj", D, D, D)
    lin(t + "obj_ptr_tpos_proj", D, D)
    return z


def random_weights(seed, **k):
    """Every tensor random, nothing left at zero; tamed so that rounding is not multiplied, and both signs of the object score occur."""
    g = torch.Generator().manual_seed(seed)
    w = {}
    for n, s in shapes(**k).items():
        r = torch.randn(s, generator=g)
        last = n.rsplit(".", 2)[-2:]
        if "gaussian" in n:
            w[n] = r
        elif last[-1] == "gamma" or last[-1] == "weight" and len(s) == 1:
            w[n] = 1 + 0.1 * r
        elif "embed" in n or "token" in last[0] or "tpos_enc" in n:
            w[n] = 0.3 * r
        elif len(s) == 1:
            w[n] = 0.1 * r
        elif "dconv" in n or "output_upscaling" in n:
            w[n] = r * s[0] ** -0.5
        else:
            w[n] = r * math.prod(s[1:]) ** -0.5
        if (
            "transformer.layers" in n
            and ("token_to_image" in n or "image_to_token" in n)
            and n.endswith(("q_proj.weight", "k_proj.weight"))
        ):
            w[n] = w[n] * 0.25
        if n.endswith("pred_obj_score_head.layers.2.weight"):
            w[n] = w[n] * 8
        if n.endswith("pred_obj_score_head.layers.2.bias"):
            w[n] = torch.full(s, INTERACTIVE_BIAS if "interactive" in n else 0.0)
        if n.endswith("interactive_mask_downsample.weight"):
            w[n] = w[n] * 8
    return w
