"""The error for bad input."""

from __future__ import annotations


class InputError(Exception):
    """Bad input, as one line: what failed, on which input, what was expected. The program prints it and exits with 1."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))
