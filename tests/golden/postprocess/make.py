"""Makes postprocess.json: torchvision's suppression, and the whole way from logits to boxes.

Run with torch and torchvision: python make.py. Seed and versions are written into the file.
Scores and overlaps that lie at a threshold are drawn again, so that rounding decides nothing.
"""

import json
import pathlib

import torch
import torchvision

SEED = 20250611


def clear_of(values, threshold, margin=1e-5):
    """Whether no value is about the threshold; exactly 0 and exactly 1 come out the same everywhere."""
    near = (values - threshold).abs() <= margin
    return not bool((near & (values != 0.0) & (values != 1.0)).any())


def random_boxes(count, width, height, generator):
    """Boxes around a few centres, so that many overlap; two decimals, as JSON writes them."""
    centres = torch.rand(max(count // 6, 1), 2, generator=generator)
    centre = centres[torch.randint(len(centres), (count,), generator=generator)]
    centre = centre + 0.03 * torch.randn(count, 2, generator=generator)
    size = 0.25 + 0.06 * torch.randn(count, 2, generator=generator).abs()
    boxes = torch.cat([centre - size / 2, centre + size / 2], 1) * torch.tensor([width, height] * 2)
    return (boxes * 1024).round() / 1024


def nms_case(count, iou, generator):
    while True:
        boxes = random_boxes(count, 100.0, 60.0, generator)
        scores = torch.randperm(count, generator=generator).float() / count
        if count >= 4:
            scores[1] = scores[3]  # a tie: the lower index first
        if clear_of(torchvision.ops.box_iou(boxes, boxes), iou):
            break
    keep = torchvision.ops.nms(boxes, scores, iou)
    return {"iou": iou, "boxes": boxes.tolist(), "scores": scores.tolist(), "keep": keep.tolist()}


def pipeline_case(classes, queries, width, height, threshold, iou, agnostic, with_presence, generator):
    while True:
        logits = ((torch.randn(classes, queries, generator=generator) * 2.5) * 256).round() / 256
        boxes = torch.stack([random_boxes(queries, 1.0, 1.0, generator) for _ in range(classes)])
        presence = ((torch.randn(classes, 1, generator=generator) * 2 + 2) * 256).round() / 256
        scores = logits.sigmoid() * (presence.sigmoid() if with_presence else 1.0)
        pixels = boxes * torch.tensor([width, height] * 2).float()
        pixels = torch.stack([torchvision.ops.clip_boxes_to_image(b, (height, width)) for b in pixels])
        overlaps = torch.nan_to_num(torchvision.ops.box_iou(pixels.flatten(0, 1), pixels.flatten(0, 1)))
        if clear_of(scores, threshold) and clear_of(overlaps, iou) and clear_of(overlaps, agnostic or 2.0):
            break
    found = []
    for class_id in range(classes):
        b, s = pixels[class_id], scores[class_id]
        index = torch.nonzero((s > threshold) & (b[:, 2] > b[:, 0]) & (b[:, 3] > b[:, 1])).flatten()
        index = index[torchvision.ops.nms(b[index], s[index], iou)]
        found += [(class_id, int(q)) for q in index]
    found.sort(key=lambda cq: (-float(scores[cq]), cq))
    if agnostic is not None and found:
        b = torch.stack([pixels[cq] for cq in found])
        s = torch.stack([scores[cq] for cq in found])
        found = [found[i] for i in torchvision.ops.nms(b, s, agnostic)]
    return {
        "width": width,
        "height": height,
        "threshold": threshold,
        "iou": iou,
        "class_agnostic_iou": agnostic,
        "logits": logits.tolist(),
        "boxes": boxes.tolist(),
        "presence": presence.flatten().tolist() if with_presence else None,
        "expected": [
            {
                "class_id": c,
                "query": q,
                "score": round(float(scores[c, q]), 7),
                "box": [round(v, 4) for v in pixels[c, q].tolist()],
            }
            for c, q in found
        ],
    }


def main():
    generator = torch.Generator().manual_seed(SEED)
    nms = [nms_case(n, iou, generator) for n in (1, 2, 7, 40) for iou in (0.0, 0.3, 0.5, 0.7, 1.0)]
    pipeline = [
        pipeline_case(1, 20, 640, 480, 0.3, 0.7, None, True, generator),
        pipeline_case(5, 24, 333, 1001, 0.3, 0.7, None, True, generator),
        pipeline_case(5, 24, 3840, 2160, 0.5, 0.5, 0.6, True, generator),
        pipeline_case(3, 24, 7, 5000, 0.2, 0.4, 0.4, False, generator),
    ]
    golden = {
        "made_with": {"seed": SEED, "torch": torch.__version__, "torchvision": torchvision.__version__},
        "nms": nms,
        "pipeline": pipeline,
    }
    path = pathlib.Path(__file__).with_name("postprocess.json")
    path.write_text(json.dumps(golden, separators=(",", ":")) + "\n")
    print(path, path.stat().st_size, "bytes;", [len(c["keep"]) for c in nms], [len(c["expected"]) for c in pipeline])


if __name__ == "__main__":
    main()
