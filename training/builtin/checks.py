#!/usr/bin/env python3
"""Quick checks of the training scripts; run them after a change.

    python checks.py

Each check compares with a reference: scipy's assignment, pycocotools' precision, Pillow's pasting, a checkpoint written
and read, `transformers`' tracker. Prints a line for each and exits with an error if one fails.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import tempfile
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

import calibrate
import evaluate_tracks
from batches import Planner, realise
from checkpoints import load_portable, pack, save_portable, unpack
from clips import FRAMES, draw_clips
from degradation import cosines, jpeg
from drawing import choose_backgrounds, compose, draw
from finish import PREFIX, blend
from layout import SLOTS, Layout, draw_layout
from losses import match, query_of_thing, total_loss
from matching import assign_one, assign_several, costs
from model import PATCH_SIZE, TrainingModel
from phrases import longest_in_tokens
from precision import Evaluation, box_overlaps
from sprites import SIDE, load_sprites
from together import Together, start_others
from tokenizer import CONTEXT, SHIPPED, load_tokenizer
from tracker import MEMORY_WIDTH, Tracker
from train_tracker import choose_objects, follow
from vocabulary import KNOWN, KNOWN_NAMES, VOCABULARY

CPU = torch.device("cpu")


def boxes(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Random boxes cxcywh."""
    size = rng.uniform(0.05, 0.4, (*shape, 2))
    return np.concatenate([rng.uniform(0.2, 0.8, (*shape, 2)), size], -1)


def check_assignment() -> str:
    """The auction against scipy: every object gets a query, and the sum is minimal within the bid increment."""
    from scipy.optimize import linear_sum_assignment

    rng, worst, left = np.random.default_rng(0), 0.0, 0
    truth, ours = torch.tensor(boxes(rng, 200, 8)), torch.tensor(boxes(rng, 200, 40))
    valid = torch.arange(8) < torch.tensor(rng.integers(0, 9, 200))[:, None]
    cost = costs(torch.tensor(rng.normal(size=(200, 40))), ours, truth)
    holder = assign_one(cost, valid)
    for row in range(200):
        count = int(valid[row].sum())
        queries, instances = linear_sum_assignment(cost[row, :, :count].numpy())
        best = float(cost[row][queries, instances].sum())
        held = holder[row]
        found = sorted(held[held >= 0].tolist())
        left += count - len(found)
        if found == list(range(count)):
            where = (held >= 0).nonzero()[:, 0]
            worst = max(worst, float(cost[row][where, held[where]].sum()) - best)
    assert worst <= 8 * 0.01 + 1e-6, f"{worst} above the least sum"
    assert left <= 4, f"{left} instances without a query"
    several = assign_several(cost, valid, 4)
    for row in range(200):
        for query, thing in enumerate(several[row].tolist()):
            assert thing < 0 or query in cost[row, :, thing].topk(4, largest=False).indices.tolist()
    return f"at most {worst:.4f} above scipy's sum, {left} of {int(valid.sum())} instances left out"


def check_precision() -> str:
    """Average precision against pycocotools."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    rng = np.random.default_rng(1)
    evaluation, annotations, results = Evaluation(), [], []
    for image in range(30):
        for category in range(4):
            truth = boxes(rng, rng.integers(0, 4)) * 300
            truth[:, :2] -= truth[:, 2:] / 2
            near = truth[rng.random(len(truth)) < 0.8]
            near = near + rng.normal(0, 6, near.shape)
            near[:, 2:] = np.abs(near[:, 2:]) + 1
            other = boxes(rng, rng.integers(0, 3)) * 300
            found = np.concatenate([near, other])
            scores = rng.random(len(found))
            annotations += [{"id": len(annotations) + index + 1, "image_id": image, "category_id": category,
                             "iscrowd": 0, "bbox": box.tolist(), "area": float(box[2] * box[3])}
                            for index, box in enumerate(truth)]
            results += [{"image_id": image, "category_id": category, "bbox": box.tolist(), "score": float(score)}
                        for box, score in zip(found, scores)]
            both = [np.concatenate([part[:, :2], part[:, :2] + part[:, 2:]], 1) for part in (found, truth)]
            evaluation.add(category, scores, box_overlaps(*both))
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO()
        truth.dataset = {"images": [{"id": image} for image in range(30)], "annotations": annotations,
                         "categories": [{"id": category} for category in range(4)]}
        truth.createIndex()
        theirs = COCOeval(truth, truth.loadRes(results), "bbox")
        theirs.evaluate()
        theirs.accumulate()
        theirs.summarize()
    ours = evaluation.summary()
    difference = max(abs(ours[name] - 100 * theirs.stats[place]) for place, name in enumerate(("ap", "ap50", "ap75")))
    assert difference < 0.02, (ours, theirs.stats[:3])
    return f"AP {ours['ap']:.2f}, {difference:.4f} from pycocotools"


def check_drawing() -> str:
    """A sprite without rotation or scaling equals the glyph; owners and boxes agree; scenes are reproducible."""
    sprites = load_sprites(80, CPU)
    side, sprite = 224, 2
    width, height = sprites.sizes[sprite].astype(int)
    one = Layout(
        sprite=np.full((1, SLOTS), -1), label=np.full((1, SLOTS), -1), centre=np.zeros((1, SLOTS, 2)),
        warp=np.tile(np.eye(2), (1, SLOTS, 1, 1)), extent=np.zeros((1, SLOTS, 2)), level=np.zeros((1, SLOTS), int),
        tint=np.zeros((1, SLOTS, 4), np.float32))
    one.sprite[0, 3], one.label[0, 3] = sprite, 2
    # The sprite is centred in its square, rounded up and left.
    one.centre[0, 3] = 40 + SIDE / 2 - (SIDE - width) // 2, 50 + SIDE / 2 - (SIDE - height) // 2
    image, owner, found = compose(sprites, one, torch.zeros(1, 3, side, side))
    from glyphs import load_glyphs
    from PIL import Image

    canvas = Image.new("RGB", (side, side))
    canvas.paste(load_glyphs()[2], (40, 50), load_glyphs()[2])
    expected = torch.from_numpy(np.asarray(canvas).astype(np.float32))
    difference = float((image[0].permute(1, 2, 0) * 255 - expected).abs().max())
    assert difference < 3, f"{difference} levels from Pillow's pasting"
    alpha = np.asarray(load_glyphs()[2])[..., 3]
    rows, columns = np.flatnonzero((alpha > 100).any(1)), np.flatnonzero((alpha > 100).any(0))
    expected = [40 + columns[0], 50 + rows[0], 40 + columns[-1] + 1, 50 + rows[-1] + 1]
    assert np.abs(found[0, 3].numpy() * side - expected).max() < 0.01, (found[0, 3] * side, expected)
    assert int((owner == 4).sum()) == int((alpha > 127).sum())
    images = []
    for _ in range(2):
        rng = np.random.default_rng(5)
        layout = draw_layout(rng, sprites, 12, side)
        drawn = draw(sprites, layout, choose_backgrounds(rng, 12), 9, side)
        images.append(drawn.pixels)
    assert torch.equal(*images)
    for scene in range(12):
        for slot in np.flatnonzero(layout.label[scene] >= 0):
            ys, xs = torch.where(drawn.owner[scene] == slot + 1)
            x1, y1, x2, y2 = (drawn.boxes[scene, slot] * side).tolist()
            assert not len(xs) or (xs.min() >= x1 and xs.max() < x2 and ys.min() >= y1 and ys.max() < y2), (scene, slot)
    seen = [int((drawn.owner[scene] == slot + 1).sum()) for scene in range(12)
            for slot in np.flatnonzero(layout.label[scene] >= 0)]
    hidden = sum(count == 0 for count in seen)
    return f"{difference:.1f} levels from Pillow, {len(seen)} instances, {hidden} of them hidden"


def check_jpeg() -> str:
    """The cosine transform is orthogonal; the best quality changes little, the worst a lot."""
    matrix = cosines(CPU)
    assert torch.allclose(matrix @ matrix.T, torch.eye(8), atol=1e-5)
    smooth = torch.linspace(0, 1, 64).view(1, 1, 1, 64).expand(1, 3, 64, 64)
    change = float((jpeg(smooth, torch.tensor([95.0])) - smooth).abs().max())
    assert change < 1 / 255, change
    edge = (torch.arange(64) > 35).float().view(1, 1, 1, 64).expand(1, 3, 64, 64)
    rough = float((jpeg(edge, torch.tensor([10.0])) - edge).abs().max())
    assert 0.03 < rough < 0.5, rough
    return f"quality 95 changes a gradient by {255 * change:.1f} levels, quality 10 an edge by {255 * rough:.0f}"


def check_words() -> str:
    """Names are unique, tokenised differently and fit into the context."""
    assert len(set(KNOWN_NAMES)) == len(KNOWN) == 180 and len(VOCABULARY) == 80
    tokenizer = load_tokenizer()
    for name in KNOWN_NAMES:
        assert sum(tokenizer.encode(name).attention_mask) < CONTEXT, f"{name} is too long"
    words = [word for thing in KNOWN for word in thing.phrases]
    assert len(set(words)) == len(words), "a word names two things"
    # The shipped vocabulary lacks some letters at the end of a word; the tokens must still distinguish all names.
    read = {tuple(tokenizer.encode(word).ids) for word in words}
    assert len(read) == len(words), "two words read alike"
    return f"{len(words)} words, the longest phrase {longest_in_tokens(load_tokenizer())} tokens"


def check_calibration() -> str:
    """Calibration recovers known numbers, and the folded weights give the expected logits."""
    torch.manual_seed(3)
    query, presence = 3 * torch.randn(2, 4000, dtype=torch.float64)
    hidden = torch.tensor([0.3, -0.4, -1.5], dtype=torch.float64)
    found = calibrate.fit(query, presence, calibrate.log_score(query, presence, hidden).exp())
    assert torch.allclose(found, hidden, atol=1e-3), (found, hidden)
    layers = {name: torch.nn.Linear(8, size).double() for name, size in ((calibrate.PRESENCE, 1), (calibrate.QUERY, 8))}
    names = [f"{layer}.{part}" for layer in layers for part in ("weight", "bias")]
    weights = {name: layers[name.rsplit(".", 1)[0]].get_parameter(name.rsplit(".", 1)[1]).detach() for name in names}
    folded, x = calibrate.fold(weights, hidden), torch.randn(5, 8, dtype=torch.float64)
    c, a, b = hidden[0].exp(), hidden[1].exp(), hidden[2]
    for layer, expected in ((calibrate.PRESENCE, a * layers[calibrate.PRESENCE](x) + b),
                            (calibrate.QUERY, c * layers[calibrate.QUERY](x))):
        found = torch.nn.functional.linear(x, folded[f"{layer}.weight"], folded[f"{layer}.bias"])
        assert torch.allclose(found, expected), layer
    return "three hidden numbers are found, folded weights give their logits"


def check_step_and_checkpoint() -> str:
    """Planning is reproducible; the shipped weights start with a low loss; a portable checkpoint can be read back."""
    torch.manual_seed(0)
    tokenizer, sprites = load_tokenizer(), load_sprites(80, CPU)
    confusion = torch.full((80, 80), 0.02)
    plans = [next(iter(Planner(tokenizer, sprites, 4, 3, 224, 6, 7, confusion, torch.ones(80)))) for _ in range(2)]
    assert (plans[0].ids == plans[1].ids).all() and plans[0].seed == plans[1].seed
    batch = realise(plans[0], sprites, 224, PATCH_SIZE)
    targets = batch.targets
    assert targets.masks.shape[1:] == (8, 64, 64) and targets.coverage.shape == (12, 16, 16)
    rows = targets.mask_rows.tolist()
    cells, asked = targets.cell_classes[batch.image_of[rows]], torch.from_numpy(plans[0].asked[rows])[:, None, None] + 1
    share = targets.masks.sum(1)
    assert (cells == asked)[share > 0.99].all() and not (cells == asked)[share < 0.01].any()
    assert 0.1 < float((share > 0.99).sum() / (share > 0.01).sum()) < 1
    model = TrainingModel(tokenizer, 224, 80)
    assert not model.start_from(SHIPPED.parent)
    outputs = model(batch)
    matched = match(outputs, targets)
    queries, has_query = query_of_thing(matched.thing[-1], targets.boxes.shape[1])
    assert (has_query == targets.valid).all()
    loss, parts = total_loss(outputs, targets, matched, torch.zeros(()))
    assert float(parts["iou"]) > 0.4, parts
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    loss.backward()
    optimizer.step()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "portable"
        for step in (1, 2):
            save_portable(place, model, optimizer, {"step": step}, Path(folder) / "curves.csv")
        other = TrainingModel(tokenizer, 224, 80)
        again = torch.optim.AdamW(other.parameters(), 1e-4, fused=True)
        assert load_portable(place, other, again, Path(folder) / "curves.csv") == {"step": 2}
        with torch.no_grad():
            worst = max(float((a - b).abs().max() / a.abs().max().clamp(min=1e-6))
                        for a, b in zip(model.parameters(), other.parameters()))
        assert worst < 1e-3, worst
        sizes = [file.stat().st_size for file in place.iterdir()]
        assert max(sizes) < 16 << 20 and sum(1 for _ in Path(folder).iterdir()) == 1
        loss, _ = total_loss(other(batch), targets, match(other(batch), targets), torch.zeros(()))
        loss.backward()
        again.step()
    values = torch.tensor([0.0, 1e-12, 3e-5, 0.7, 6.0])
    assert torch.allclose(unpack(pack(values)), values, rtol=0.08), unpack(pack(values))
    larger = TrainingModel(tokenizer, 280, 80)
    notes = larger.start_from(SHIPPED.parent)
    assert len(notes) == 1 and "from a grid of 16 to 20" in notes[0], notes
    return f"IoU of the shipped weights {float(parts['iou']):.2f}, portable {sum(sizes) / 1e6:.1f} MB"


def check_blend() -> str:
    """Blending with another checkpoint, and an error for a checkpoint of another model."""
    shipped = load_file(SHIPPED.parent / "model.safetensors")
    zeros = {PREFIX + name: torch.zeros_like(value) for name, value in shipped.items()}
    blended = blend(zeros | {"token_classes.bias": torch.ones(3)}, SHIPPED.parent, 0.25)
    assert blended.keys() == zeros.keys()
    for name, value in shipped.items():
        assert torch.equal(blended[PREFIX + name], 0.25 * value.float()), name
    name = next(iter(zeros))
    for other in ({name: zeros[name]}, zeros | {name: torch.zeros(3, 5)}):
        try:
            blend(other, SHIPPED.parent, 0.25)
        except SystemExit as refused:
            assert "another model" in str(refused), refused
        else:
            raise AssertionError("it was blended")
    return f"{len(blended)} weights"


def check_missed() -> str:
    """A name that is missed five times as often as others is drawn more often, but not five times as often."""
    sprites, counts = load_sprites(80, CPU), []
    for missed in (np.ones(80), np.where(np.arange(80) == 7, 1.0, 0.2)):
        layout = draw_layout(np.random.default_rng(2), sprites, 400, 224, missed)
        counts.append(sum(7 in layout.present(scene) for scene in range(400)))
    assert 2 * counts[0] < counts[1] < 6 * counts[0], counts
    return f"in {counts[1]} of 400 scenes, {counts[0]} where all are alike"


def meet_often(arguments: argparse.Namespace, together: Together) -> None:
    """Averages gradients equal to the rank, and those of a second parameter that only the first process has."""
    model = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(5)), torch.nn.Parameter(torch.zeros(2))])
    if together.rank == 0:
        together.prepare(model)
        start_others(together, meet_often, arguments)
    for step in range(50):
        said = together.agree(step if together.rank == 0 else -1)
        model[0].grad = torch.full((5,), float(together.rank + step))
        model[1].grad = torch.full((2,), 6.0) if together.rank == 0 else None
        together.average_gradients(model)
        assert said == step and (model[0].grad == step + 1).all() and (model[1].grad == 2).all(), (said, step)
        if arguments.fail and together.rank == 2 and step == 9:
            raise SystemExit(1)


def check_together() -> str:
    """Three processes agree on means; if one of them ends, the others do not wait for it."""
    meet_often(argparse.Namespace(fail=False), Together(3, torch.zeros(2, 2)))
    try:
        meet_often(argparse.Namespace(fail=True), Together(3, torch.zeros(2, 2)))
    except SystemExit as error:
        assert "was lost" in str(error), error
        return "means of three processes, and a lost one is noticed"
    raise AssertionError("a lost process was not noticed")


def small_tracker() -> Tracker:
    """A tracker with random values, also where they start as nothing."""
    torch.manual_seed(3)
    tracker = Tracker(224).eval()
    with torch.no_grad():
        for value in tracker.parameters():
            value.add_(0.05 * torch.randn(value.shape))
    return tracker


@torch.no_grad()
def check_tracker() -> str:
    """The steps of the tracker against the modules of `transformers`, object by object."""
    tracker = small_tracker()
    model, grid = tracker.modules_of, tracker.grid
    levels = [torch.randn(1, 128, side, side) for side in (4 * grid, 2 * grid, grid)]
    frames = tracker.features(levels).of(torch.zeros(2, dtype=torch.long))
    memories, pointers = torch.randn(2, 3, grid ** 2, MEMORY_WIDTH), torch.randn(2, 2, 128)
    times, ages = torch.tensor([[6, 0, 1]] * 2), torch.tensor([[1.0, 3.0]] * 2)
    image = tracker.attend(frames.query, memories, times, pointers, ages / 15)
    decoded = tracker.decode(image, frames)
    masks = torch.randn(2, 4 * grid, 4 * grid)
    memory = tracker.memory(frames, masks, torch.tensor([True, False]), False)
    worst = 0.0

    def compare(ours: torch.Tensor, theirs: torch.Tensor) -> None:
        nonlocal worst
        worst = max(worst, float((ours - theirs).abs().max() / theirs.abs().max()))

    for row in range(2):
        of_times = model.memory_temporal_positional_encoding[times[row]][:, 0]
        places = (tracker.memory_places[0] + of_times).reshape(-1, 1, MEMORY_WIDTH)
        given = [pointer[None] for pointer in pointers[row]]
        of_pointers, of_ages = model._process_object_pointers([1, 3], given, 16, 1, 128, "cpu")
        theirs = model.memory_attention(
            current_vision_features=levels[2].flatten(2).permute(2, 0, 1),
            current_vision_position_embeddings=tracker.pixel_places.transpose(0, 1),
            memory=torch.cat([memories[row].reshape(-1, 1, MEMORY_WIDTH), of_pointers]),
            memory_posision_embeddings=torch.cat([places, of_ages]), num_object_pointer_tokens=len(of_pointers))
        compare(image[row].flatten(1), theirs.reshape(grid ** 2, 128).T)
        none = torch.zeros(1, 1, 1, 2), -torch.ones(1, 1, 1, dtype=torch.int32)
        points, dense = model.prompt_encoder(*none, None, None)
        places = model.get_image_wide_positional_embeddings()
        found, ious, tokens, score = model.mask_decoder(
            image_embeddings=image[row:row + 1], image_positional_embeddings=places,
            sparse_prompt_embeddings=points, dense_prompt_embeddings=dense, multimask_output=True,
            high_resolution_features=[frames.fine[:1], frames.middle[:1]])
        for ours, theirs in ((decoded.masks[row, 1:], found), (decoded.ious[row, 1:], ious),
                             (decoded.tokens[row, 1:], tokens), (decoded.score[row], score)):
            compare(ours, theirs.reshape(ours.shape))
        fine = torch.nn.functional.interpolate(masks[row][None, None], (16 * grid,) * 2, mode="bilinear")
        theirs, _ = model.memory_encoder(levels[2], fine.sigmoid() * 20 - 10)
        theirs = theirs.flatten(2)[0].T + (model.occlusion_spatial_embedding_parameter if row else 0)
        compare(memory[row], theirs)
    assert worst < 1e-4, worst
    return f"within {worst:.0e}"


def check_clips() -> str:
    """Instances move, some are hidden for a while, and following them gives every trained part a gradient."""
    rng, tracker = np.random.default_rng(5), small_tracker()
    clips = draw_clips(rng, load_sprites(80, CPU), 4, 224)
    back = clips.reversed()
    assert torch.equal(back.pixels[:, 0], clips.pixels[:, FRAMES - 1])
    assert torch.equal(back.reversed().owner, clips.owner)
    objects = choose_objects(rng, clips, 4 * tracker.grid, 12)
    changed = (objects.masks[0] - objects.masks[-1]).abs().sum((1, 2)) > objects.masks[0].sum((1, 2)) * 0.5
    hidden = (objects.seen < 0.3 * objects.seen[0]).any(0)
    assert changed.sum() >= 3 and hidden.sum() >= 1, (changed, hidden)
    levels = [[torch.randn(4, 128, side, side) for side in (64, 32, 16)] for _ in range(FRAMES)]
    follow(rng, tracker, levels, objects, 0.5).total.backward()
    # Clicks are not trained.
    idle = [name for name, value in tracker.named_parameters() if value.requires_grad
            and (value.grad is None or not value.grad.any()) and "point_embed" not in name]
    allowed = ("no_memory_embedding", "no_memory_positional_encoding", "occlusion_spatial", "no_object_pointer")
    assert not [name for name in idle if not any(word in name for word in allowed)], idle
    return f"{int(changed.sum())} of {len(objects.clip)} objects move, {int(hidden.sum())} are hidden"


def check_tracks() -> str:
    """Figures of tracks that are known: an id that changes half-way, during which the object is hidden."""
    box = [10, 10, 30, 30]
    truth = [[{"id": 0, "label": "dog", "box": box, "seen": box, "visible": 0.0 if 8 <= frame < 12 else 1.0}]
             for frame in range(20)]
    for kept in (True, False):
        tracks = [[] if 8 <= frame < 12 else [{"id": 1 if kept or frame < 8 else 2, "label": "dog", "box": box}]
                  for frame in range(20)]
        frames = list(evaluate_tracks.prepared(truth, tracks))
        hits, misses, alarms, association = evaluate_tracks.hota(frames).T
        assert (hits == 16).all() and not misses.any() and not alarms.any()
        assert np.allclose(association / hits, 1.0 if kept else 0.5)
        assert evaluate_tracks.identity(frames) == (16 if kept else 8, 16, 16)
        ids = evaluate_tracks.matched_ids(truth, tracks)
        assert evaluate_tracks.switches(ids) == (not kept)
        assert evaluate_tracks.occlusions(truth, ids) == (1, kept, not kept)
    return "an id that is kept, and one that is not"


def main() -> None:
    torch.set_num_threads(1)
    for check in (check_words, check_assignment, check_precision, check_jpeg, check_drawing, check_calibration,
                  check_blend, check_missed, check_tracker, check_clips, check_tracks, check_step_and_checkpoint,
                  check_together):
        print(f"{check.__name__}: {check()}", flush=True)


if __name__ == "__main__":
    main()
