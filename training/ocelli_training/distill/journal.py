"""The losses of a run: a table, TensorBoard's events and a plot."""

from __future__ import annotations

import csv
from pathlib import Path

from ..errors import InputError

LOSSES, PLOT, EVENTS = "losses.csv", "losses.png", "tensorboard"


class Journal:
    """Writes a row for each step. After a stop, rows of steps that will be repeated are dropped."""

    def __init__(self, folder: Path, columns: list[str], step: int, tensorboard: bool) -> None:
        self.path, self.columns = folder / LOSSES, columns
        kept = [row for row in self.rows() if int(row["step"]) <= step] if step else []
        temporary = self.path.with_suffix(".tmp")
        with temporary.open("w", newline="") as file:
            writer = csv.DictWriter(file, columns, restval="", extrasaction="ignore")
            writer.writeheader()
            writer.writerows(kept)
        temporary.replace(self.path)
        self.file = self.path.open("a", newline="")
        self.writer = csv.DictWriter(self.file, columns, restval="")
        self.events = None
        if tensorboard:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError as error:
                raise InputError("tensorboard is not installed: pip install tensorboard, or leave out --tensorboard") from error
            self.events = SummaryWriter(folder / EVENTS, purge_step=step + 1)

    def rows(self) -> list[dict[str, str]]:
        """All rows; a last one that was cut off is left out."""
        if not self.path.exists():
            return []
        with self.path.open(newline="") as file:
            return [row for row in csv.DictReader(file) if (row.get("step") or "").isdecimal() and None not in row.values()]

    def add(self, values: dict[str, float | int]) -> None:
        """One step: `step` and columns; floats are written so that they are read back exactly."""
        self.writer.writerow({name: repr(value) for name, value in values.items()})
        self.file.flush()
        if self.events is not None:
            for name, value in values.items():
                if name != "step":
                    self.events.add_scalar(name, value, values["step"])

    def close(self) -> None:
        self.file.close()
        if self.events is not None:
            self.events.close()

    def plot(self, note: str) -> None:
        """Plots the losses by step."""
        try:
            import matplotlib
        except ImportError:
            print(f"matplotlib is not installed: the losses are in {self.path} only")
            return
        matplotlib.use("Agg")
        from matplotlib import pyplot

        rows = self.rows()
        if not rows:
            return
        figure, axis = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
        for name in self.columns:
            points = [(int(row["step"]), float(row[name])) for row in rows if row[name]]
            if name in ("step", "rate", "seconds") or not points:
                continue
            steps, values = zip(*points)
            is_sparse = len(points) < len(rows)
            axis.plot(steps, values, label=name.replace("_", " "), linewidth=1, marker="o" if is_sparse else None, markersize=3)
        axis.set(xlabel="step", ylabel="loss", yscale="log", title=note)
        axis.legend(fontsize=8)
        figure.savefig(self.path.with_name(PLOT), dpi=120)
        pyplot.close(figure)
