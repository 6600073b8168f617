"""One run in several processes of one machine, which synchronise once a step to average their gradients.

On a CPU with other load this is faster than threads, which synchronise hundreds of times a step and wait for any thread
that is not scheduled.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import signal
import threading
from argparse import Namespace
from typing import Callable

import torch
from torch import Tensor, nn

# After this wait the first process is assumed to have been killed.
PATIENCE_SECONDS = 1800


class Together:
    """The shared state of the processes; the first one, `rank` 0, controls the run, writes and reports.

    `confusion` [names, names] and `missed` [names] as `Planner` has them.
    """

    def __init__(self, count: int, confusion: Tensor) -> None:
        self.count, self.rank, self.confusion = count, 0, confusion.share_memory_()
        self.missed = torch.ones(len(confusion)).share_memory_()
        self.barrier = multiprocessing.get_context("spawn").Barrier(count, timeout=PATIENCE_SECONDS)
        self.word, self.gradients = torch.zeros(1, dtype=torch.float64).share_memory_(), torch.empty(0)

    def prepare(self, model: nn.Module) -> None:
        """Allocates the gradients, before the other processes start."""
        numbers = sum(parameter.numel() for parameter in model.parameters())
        self.gradients = torch.zeros(self.count, numbers).share_memory_()

    def agree(self, said: float) -> float:
        """A value that the first process sets for all. Raises `SystemExit` if a process was lost."""
        if self.count == 1:
            return said
        if self.rank == 0:
            self.word[0] = said
        self.meet()
        return float(self.word[0])

    @torch.no_grad()
    def average_gradients(self, model: nn.Module) -> None:
        """Replaces every gradient by the mean over the processes."""
        if self.count == 1:
            return
        parameters, place = list(model.parameters()), 0
        for parameter in parameters:
            mine = self.gradients[self.rank, place:place + parameter.numel()]
            mine.zero_() if parameter.grad is None else mine.copy_(parameter.grad.flatten())
            place += parameter.numel()
        self.meet()
        mean, place = self.gradients.mean(0), 0
        # No process writes the next gradients before all have read these.
        self.meet()
        for parameter in parameters:
            theirs = mean[place:place + parameter.numel()].view_as(parameter)
            place += parameter.numel()
            if parameter.grad is not None:
                parameter.grad.copy_(theirs)
            elif theirs.any():
                parameter.grad = theirs.clone()

    def meet(self) -> None:
        """Waits for all."""
        try:
            self.barrier.wait()
        except threading.BrokenBarrierError:
            raise SystemExit("error: a training process was lost: add --resume to go on") from None


def start_others(together: Together, work: Callable[[Namespace, Together], None], arguments: Namespace) -> None:
    """Starts the other processes, which run `work`; they end with this one, and it ends if one of them fails."""
    context = multiprocessing.get_context("spawn")
    others = [context.Process(target=run_other, args=(together, rank, work, arguments), daemon=True)
              for rank in range(1, together.count)]
    for other in others:
        other.start()
    if others:
        threading.Thread(target=watch, args=(together, [other.sentinel for other in others]), daemon=True).start()


def watch(together: Together, sentinels: list[int]) -> None:
    """Releases processes that wait for one that has ended; at the end of a run none wait."""
    multiprocessing.connection.wait(sentinels)
    together.barrier.abort()


def run_other(together: Together, rank: int, work: Callable[[Namespace, Together], None], arguments: Namespace) -> None:
    """One of the other processes; the first one handles Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    together.rank = rank
    work(arguments, together)
