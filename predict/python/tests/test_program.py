"""The command line in the wheel."""

from __future__ import annotations

import subprocess
import sys

from joulecast._program import run


def program(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-m", "joulecast", *words], capture_output=True, text=True, check=False)


def test_it_is_the_program() -> None:
    done = program("predict", "--net", "resnet50", "--gpu", "v100", "--batch", "64")
    assert done.returncode == 0 and done.stdout.startswith("resnet50 on v100"), done.stderr
    assert program("list", "gpus").stdout.startswith("name")
    assert "Usage: joulecast" in program("predict", "--help").stdout
    swept = program("sweep", "--net", "alexnet", "--gpu", "v100", "--batch", "1,2", "--shard", "2/2")
    assert swept.stdout.count("\n") == 2 and "alexnet,v100,2" in swept.stdout
    # What it made says by which words.
    page = program("plan", "data/capacity/none.toml")
    assert page.returncode == 1 and "none.toml" in page.stderr


def test_it_ends_as_the_program_does() -> None:
    wrong = program("predict", "--net", "resnet5", "--gpu", "v100", "--batch", "1")
    assert wrong.returncode == 2 and "nearest: resnet50" in wrong.stderr and "Traceback" not in wrong.stderr
    assert program("prdict").returncode == 2 and run(["--version"]) == 0
