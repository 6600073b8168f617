"""The options of `python -m ocelli_training distill`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import NoReturn

import torch

from .losses import LEVEL_WEIGHTS
from .students import PHASES

PRUNED = "pruned"


class OneLineParser(argparse.ArgumentParser):
    """Errors are one line."""

    def error(self, message: str) -> NoReturn:
        print(f"error: {message}", file=sys.stderr)
        sys.exit(2)


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value}: expected at least 1")
    return value


def not_negative(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text}: expected at least 0")
    return value


def share(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text}: expected 0 to 1")
    return value


def parser() -> argparse.ArgumentParser:
    made = OneLineParser(prog="python -m ocelli_training distill", description="Trains a student of SAM3's image backbone.")
    group = made.add_argument_group("models")
    group.add_argument("--teacher", type=Path, required=True, help="detector: a Hugging Face folder, or a file such as sam3.pt")
    group.add_argument("--phase", required=True, choices=[*PHASES, PRUNED],
                       help="what is trained: adapters alone, the whole student, changes of low rank and adapters, or the pruned "
                            "trunk of the teacher")
    group.add_argument("--student", metavar="NAME", help="network of timm, such as repvit_m2_3, tiny_vit_21m_224, efficientvit_l1")
    group.add_argument("--student-options", metavar="JSON", help="sizes that differ from those of the network's name")
    group.add_argument("--student-weights", type=Path, metavar="FILE",
                       help="timm's weights of the network, or the student.pt of an earlier phase [default: random]")
    group.add_argument("--lora-rank", type=positive, default=16, metavar="N", help="[default: %(default)s]")
    group.add_argument("--skip-blocks", default="", metavar="BLOCKS", help="blocks that are removed, e.g. 5,10")
    group.add_argument("--mask-blocks", default="", metavar="BRANCHES", help="branches that are removed, e.g. 25:attn,28:mlp")
    group.add_argument("--prune", type=Path, metavar="FILE", help="a report of ocelli prune, in place of the two lists")
    group.add_argument("--prune-step", type=int, metavar="N", help="step of the report [default: the last]")
    group.add_argument("--imgsz", type=positive, metavar="PX", help="side of the images [default: the teacher's]")
    group = made.add_argument_group("images")
    group.add_argument("--images", type=Path, nargs="+", required=True, metavar="PATH", help="folders and tar files of webdataset")
    group.add_argument("--validation", type=Path, nargs="+", metavar="PATH", help="images to measure at every save, not trained on")
    group.add_argument("--validation-images", type=positive, default=64, metavar="N", help="of them [default: %(default)s]")
    group.add_argument("--flip", type=share, default=0.0, metavar="P", help="share of mirrored images [default: 0]")
    group.add_argument("--workers", type=int, default=0, metavar="N", help="processes that decode [default: 0, none beside]")
    group = made.add_argument_group("loss")
    group.add_argument("--level-weights", type=not_negative, nargs=3, default=list(LEVEL_WEIGHTS), metavar="W",
                       help="of the levels, finest first; 0 leaves a level out [default: 0.15 0.2 0.65]")
    group.add_argument("--detection-weight", type=not_negative, default=0.0, metavar="W",
                       help="of the loss on detections through the frozen encoder-decoder [default: 0, without]")
    group.add_argument("--classes", nargs="+", metavar="PHRASE", help="for that loss: phrases, or files with one a line")
    group.add_argument("--classes-per-step", type=positive, default=4, metavar="N", help="[default: %(default)s]")
    group.add_argument("--tokenizer", type=Path, metavar="FILE", help="tokenizer.json [default: the one beside the teacher]")
    group = made.add_argument_group("steps")
    length = group.add_mutually_exclusive_group(required=True)
    length.add_argument("--steps", type=positive, metavar="N", help="length of the run")
    length.add_argument("--epochs", type=positive, metavar="N", help="the same in passes over the images")
    group.add_argument("--batch", type=positive, default=8, metavar="N", help="images at once in a process [default: %(default)s]")
    group.add_argument("--accumulate", type=positive, default=1, metavar="N", help="batches of a step [default: %(default)s]")
    group.add_argument("--rate", type=not_negative, metavar="RATE", help="learning rate [default: 1e-3 for adapters, else 1e-4]")
    group.add_argument("--warm-up", type=int, default=0, metavar="STEPS", help="[default: %(default)s]")
    group.add_argument("--weight-decay", type=not_negative, default=0.01, metavar="W", help="[default: %(default)s]")
    group.add_argument("--clip", type=not_negative, default=0.0, metavar="NORM", help="largest norm of gradients [default: 0, any]")
    group.add_argument("--running-norms", action="store_true",
                       help="in phase full, keep the statistics of batch norms, so that accumulation is exact")
    group.add_argument("--seed", type=int, default=0, metavar="N", help="[default: %(default)s]")
    group = made.add_argument_group("machine")
    group.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    group.add_argument("--precision", choices=["fp32", "bf16", "fp16"], default="fp32", help="of activations [default: fp32]")
    group.add_argument("--sharding", choices=["ddp", "fsdp"], default="ddp", help="with several processes [default: ddp]")
    group.add_argument("--threads", type=positive, metavar="N", help="CPU threads of a process [default: PyTorch's choice]")
    group = made.add_argument_group("output")
    group.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder of the run")
    group.add_argument("--resume", action="store_true", help="continue the run in the folder at the step of its last save")
    group.add_argument("--save-every", type=positive, default=500, metavar="STEPS", help="[default: %(default)s]")
    group.add_argument("--report-every", type=positive, default=20, metavar="STEPS", help="[default: %(default)s]")
    group.add_argument("--tensorboard", action="store_true", help="also write events for TensorBoard")
    return made


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parses options and refuses those that do not belong to the phase."""
    made = parser()
    options = made.parse_args(arguments)
    pruning = {"--skip-blocks": options.skip_blocks, "--mask-blocks": options.mask_blocks, "--prune": options.prune}
    network = {"--student": options.student, "--student-options": options.student_options,
               "--student-weights": options.student_weights}
    foreign = network if options.phase == PRUNED else pruning
    for name, value in foreign.items():
        if value:
            made.error(f"{name} does not belong to phase {options.phase}")
    if options.phase == PRUNED:
        if not any(pruning.values()):
            made.error("phase pruned needs --skip-blocks, --mask-blocks or --prune")
        if options.prune and (options.skip_blocks or options.mask_blocks):
            made.error("--prune names the blocks: --skip-blocks and --mask-blocks do not belong to it")
    elif not options.student:
        made.error(f"phase {options.phase} needs --student")
    if options.prune_step is not None and not options.prune:
        made.error("--prune-step needs --prune")
    if options.running_norms and options.phase != "full":
        made.error(f"--running-norms does not belong to phase {options.phase}, which keeps them anyway")
    if options.detection_weight and not options.classes:
        made.error("--detection-weight needs --classes")
    if options.classes and not options.detection_weight:
        made.error("--classes needs --detection-weight")
    if not options.level_weights[-1]:
        made.error("--level-weights: the last level, which the encoder reads, needs a weight above 0")
    if options.precision == "fp16" and options.device == "cpu":
        made.error("--precision fp16 needs --device cuda; bf16 works on a CPU")
    if options.rate is None:
        options.rate = 1e-3 if options.phase == "adapter" else 1e-4
    return options
