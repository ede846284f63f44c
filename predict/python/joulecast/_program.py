"""The command line: `joulecast predict --net resnet50 --gpu h100`."""

from __future__ import annotations

import signal
import sys
from typing import List, NoReturn, Optional

from ._joulecast import program

# `predict` is the name of the program that `cargo install` makes; here it is a command beside its commands.
_COMMANDS = ("optimize", "compare", "sweep", "serve", "plan", "describe", "convert", "papers", "list", "completions", "help")


def run(args: List[str]) -> int:
    """Runs a command line, without the program's name, and returns its exit status: 0, 1 for failures, 2 for wrong options.

    >>> run(["predict", "--net", "alexnet", "--gpu", "none"])
    2
    """
    if args and args[0] == "predict":
        args = args[1:]
    elif args and not args[0].startswith("-") and args[0] not in _COMMANDS:
        print(f"error: no command {args[0]!r}; there are predict, {', '.join(_COMMANDS)}", file=sys.stderr)
        return 2
    return program(args)


def main(args: Optional[List[str]] = None) -> NoReturn:
    """The entry point of `joulecast` and of `python -m joulecast`."""
    # Python would only note Ctrl-C until the program returns.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(run(sys.argv[1:] if args is None else args))
