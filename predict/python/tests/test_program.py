"""The command line in the wheel."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import joulecast

ROOT = Path(__file__).resolve().parents[3]


def program(*words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-m", "joulecast", *words], capture_output=True, text=True, check=False, env={**os.environ, **environment})


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
    assert program("prdict").returncode == 2
    absent = program("papers")
    assert absent.returncode == 2 and "cargo install --path predict" in absent.stderr
    assert "papers" not in program("--help").stdout
    told = program("--help").stdout
    assert "joulecast host" in told and "Usage: joulecast" in told


def test_it_is_called_joulecast() -> None:
    command = Path(sys.executable).with_name("joulecast" + (".exe" if os.name == "nt" else ""))
    called = subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout
    assert called.startswith(f"joulecast {joulecast.__version__} (") and "data " in called and called.count("\n") == 1
    assert program("--version").stdout == called == program("predict", "--version").stdout
    # Examples and hints are to be typed as they stand.
    for words in (["--help"], ["serve", "--help"]):
        told = program(*words).stdout
        assert "\n  joulecast serve --net" in told and "\n  predict " not in told, words
    assert "joulecast list gpus" in program("--net", "resnet50").stderr
    page = program("compare", "--net", "lenet5", "--gpu", "v100", "--batch", "1", "--format", "html").stdout
    assert f"by {called[:9 + len(joulecast.__version__) + 1]}" in page and "joulecast compare --net lenet5" in page
    assert "complete -F _joulecast" in program("completions", "bash").stdout


def test_the_host_of_this_machine_is_kept_as_calibrate_keeps_it(tmp_path: Path) -> None:
    recorded = ROOT / "calibrate/tests/host_chains.json"
    if not recorded.exists():
        pytest.skip("no recorded chains: not in the repository")
    out = tmp_path / "host.toml"
    done = program("host", "--from", str(recorded), "--out", str(out))
    assert done.returncode == 0 and 'schema = "host/1"' in out.read_text(), done.stderr
    line = done.stdout.splitlines()[-1]
    assert line == f"joulecast predict --net resnet50 --gpu h200 --framework pytorch --host {out}"
    answered = program(*line.split()[1:], "--batch", "1", "--launch", "eager")
    assert answered.returncode == 0 and "Recorded CPU" in answered.stdout, answered.stdout + answered.stderr


@pytest.mark.skipif(os.name == "nt", reason="boards are asked on Linux")
def test_without_a_driver_detect_says_so() -> None:
    done = program("detect", JOULECAST_NVML="/nowhere/libnvidia-ml.so.1")
    assert done.returncode == 1 and "NVML is not available" in done.stderr and done.stderr.count("\n") == 1
