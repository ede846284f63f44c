"""The command line: `joulecast predict --net resnet50 --gpu h100`."""

from __future__ import annotations

import signal
import sys
from typing import List, NoReturn, Optional

from ._joulecast import program

# What is here besides the commands of `predict`, whose help cannot know of it.
_MORE = """
Also:
  joulecast predict  what stands for no command at all: joulecast predict --net resnet50 --gpu h100
  joulecast host     how fast this machine's host launches PyTorch's operations: a file that predictions of eager steps take
  joulecast detect   which GPU is here, and which calibration fits it
"""


def run(args: List[str]) -> int:
    """Runs a command line, without the program's name, and returns its exit status: 0, 1 for failures, 2 for wrong options.

    >>> run(["predict", "--net", "alexnet", "--gpu", "none"])
    2
    """
    status = program(args[1:] if args[:1] == ["predict"] else args)
    if args in (["--help"], ["-h"], ["help"]):
        print(_MORE, end="", flush=True)
    return status


def main(args: Optional[List[str]] = None) -> NoReturn:
    """The entry point of `joulecast` and of `python -m joulecast`."""
    # Python would only note Ctrl-C until the program returns.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(run(sys.argv[1:] if args is None else args))
