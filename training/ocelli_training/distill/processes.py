"""How several processes share the steps of a run: started by torchrun or Slurm, joined by DDP or FSDP."""

from __future__ import annotations

import os
import re
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
import torch.distributed as distributed
from torch import Tensor, nn
from torch.distributed.nn.functional import all_reduce
from torch.nn.parallel import DistributedDataParallel

from ..errors import InputError


def first_host(nodes: str) -> str:
    """The first host of Slurm's list: "gpu[03-05,9],login" → "gpu03"."""
    found = re.match(r"([^,\[]+)(?:\[(\d+))?", nodes)
    if not found:
        raise InputError(f"SLURM_JOB_NODELIST is {nodes!r}: expected names of hosts")
    return found[1] + (found[2] or "")


def from_slurm(environment: dict[str, str]) -> dict[str, str]:
    """What torchrun would set, for tasks of `srun`; empty if there is one task or torchrun has set it."""
    if "RANK" in environment or int(environment.get("SLURM_NTASKS", "1")) < 2 or "SLURM_PROCID" not in environment:
        return {}
    # The same port for all tasks of a job, and another one for most other jobs.
    port = 29500 + int(environment.get("SLURM_JOB_ID", "0")) % 1000
    return {
        "RANK": environment["SLURM_PROCID"], "WORLD_SIZE": environment["SLURM_NTASKS"],
        "LOCAL_RANK": environment.get("SLURM_LOCALID", "0"),
        "MASTER_ADDR": environment.get("MASTER_ADDR") or first_host(environment.get("SLURM_JOB_NODELIST", "localhost")),
        "MASTER_PORT": environment.get("MASTER_PORT") or str(port),
    }


@dataclass
class Processes:
    """The place of this process among the `count` of a run."""

    rank: int
    count: int
    device: torch.device
    has_joined: bool = False

    @staticmethod
    def start(device: str) -> Processes:
        """Joins the other processes, with NCCL on GPUs and gloo on CPUs, unless they are joined; alone if there are no others."""
        os.environ.update(from_slurm(dict(os.environ)))
        local = int(os.environ.get("LOCAL_RANK", "0"))
        count, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
        if device == "cuda":
            if not torch.cuda.is_available():
                raise InputError("device is cuda: PyTorch finds no GPU here")
            # Slurm may show each task its own GPU alone.
            place = torch.device("cuda", local % torch.cuda.device_count())
            torch.cuda.set_device(place)
        else:
            place = torch.device(device)
        joins = count > 1 and not distributed.is_initialized()
        if joins:
            distributed.init_process_group("nccl" if device == "cuda" else "gloo")
        return Processes(rank, count, place, joins)

    def stop(self) -> None:
        if self.has_joined:
            distributed.destroy_process_group()

    def mean(self, values: Tensor) -> Tensor:
        """The mean over all processes."""
        if self.count > 1:
            distributed.all_reduce(values)
            values = values / self.count
        return values

    def same(self, text: str | None) -> str | None:
        """The text of the first process that has one, in every process."""
        if self.count == 1:
            return text
        gathered: list[str | None] = [None] * self.count
        distributed.all_gather_object(gathered, text)
        return next((one for one in gathered if one is not None), None)


class SharedBatchNorm2d(nn.BatchNorm2d):
    """Batch norm whose statistics in training are those of the images of all processes, on CPUs and GPUs."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return super().forward(x)
        # In f32 whatever autocast does: sums of squares overflow in half precision.
        with torch.autocast(x.device.type, enabled=False):
            values, processes = x.float(), distributed.get_world_size()
            mean = all_reduce(values.mean((0, 2, 3))) / processes
            centred = values - mean[:, None, None]
            variance = all_reduce(centred.square().mean((0, 2, 3))) / processes
            with torch.no_grad():
                count = values.numel() / values.shape[1] * processes
                self.num_batches_tracked += 1
                self.running_mean.lerp_(mean, self.momentum)
                self.running_var.lerp_(variance * (count / max(1.0, count - 1)), self.momentum)
            scale = self.weight * torch.rsqrt(variance + self.eps)
            return centred * scale[:, None, None] + self.bias[:, None, None]


def share_batch_norms(module: nn.Module) -> None:
    """Makes every batch norm of a module a shared one; its tensors stay."""
    for part in module.modules():
        if type(part) is nn.BatchNorm2d:
            part.__class__ = SharedBatchNorm2d


class Joined:
    """A student that several processes train: alone, replicated (`ddp`) or in shards (`fsdp`)."""

    def __init__(self, student: nn.Module, processes: Processes, sharding: str) -> None:
        self.student, self.processes = student, processes
        self.is_sharded = processes.count > 1 and sharding == "fsdp"
        self.module: nn.Module = student
        if processes.count == 1:
            return
        share_batch_norms(student)
        if self.is_sharded:
            from torch.distributed.fsdp import fully_shard

            for block in student.blocks():
                if any(True for _ in block.parameters()):
                    fully_shard(block)
            fully_shard(student)
        else:
            # Statistics are the same everywhere already.
            self.module = DistributedDataParallel(student, broadcast_buffers=False)

    def __call__(self, pixels: Tensor) -> list[Tensor]:
        return self.module(pixels)

    def accumulating(self, is_last: bool) -> AbstractContextManager:
        """Within it, gradients are summed up locally, but for the last batch of a step."""
        if self.is_sharded:
            self.student.set_requires_gradient_sync(is_last)
        elif self.processes.count > 1 and not is_last:
            return self.module.no_sync()
        return nullcontext()

    def states(self, optimizer: torch.optim.Optimizer) -> tuple[dict, dict]:
        """The whole state of the student and of the optimizer, by the names of tensors; of shards, in the first process alone.

        A run can be continued by another number of processes, and by `ddp` after `fsdp` or the other way.
        """
        if not self.is_sharded:
            return self.student.state_dict(), relabelled(optimizer.state_dict(), dict(enumerate(self.trained())))
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict

        return get_state_dict(self.student, optimizer, options=StateDictOptions(full_state_dict=True, cpu_offload=True))

    def restore(self, optimizer: torch.optim.Optimizer, weights: dict, progress: dict) -> None:
        """The opposite of `states`, with the whole states in every process."""
        if not self.is_sharded:
            self.student.load_state_dict(weights)
            optimizer.load_state_dict(relabelled(progress, {name: index for index, name in enumerate(self.trained())}))
            return
        from torch.distributed.checkpoint.state_dict import StateDictOptions, set_state_dict

        set_state_dict(self.student, optimizer, model_state_dict=weights, optim_state_dict=progress,
                       options=StateDictOptions(full_state_dict=True))

    def trained(self) -> list[str]:
        """The names of what the optimizer has, in its order."""
        return [name for name, value in self.student.named_parameters() if value.requires_grad]


def relabelled(progress: dict, labels: dict) -> dict:
    """The state of an optimizer with other labels for its tensors: names for numbers, or numbers for names."""
    groups = [group | {"params": [labels[label] for label in group["params"]]} for group in progress["param_groups"]]
    return {"state": {labels[label]: value for label, value in progress["state"].items()}, "param_groups": groups}
