"""`python -m ocelli_training`."""

from __future__ import annotations

import sys

from .distill import command
from .errors import InputError

USAGE = "usage: python -m ocelli_training distill [OPTIONS]; --help after it lists them"


def main(arguments: list[str] | None = None) -> int:
    """Runs a command; returns the exit status: 0, 1 for bad input, 2 for bad options, 128 + N after signal N."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] in (["-h"], ["--help"]):
        print(USAGE)
        return 0
    if arguments[:1] != ["distill"]:
        found = f"unknown command {arguments[0]}" if arguments else "no command"
        print(f"error: {found}; {USAGE}", file=sys.stderr)
        return 2
    try:
        return command.main(arguments[1:])
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
