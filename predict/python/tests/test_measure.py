"""Measured beside foreseen, on the stand-in for NVML that tests/fake-nvml builds."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT

LOOP = """
import time, json
import joulecast as jc
foreseen = jc.predict("resnet50", "h200", batch=64)
with jc.measure(gpu=0, foreseen=foreseen) as m:
    for _ in range(24):
        time.sleep(0.05)
        m.step()
print(json.dumps(m.to_dict())); print(m)
"""


def library() -> Path:
    named = os.environ.get("JOULECAST_FAKE_NVML")
    places = [Path(named)] if named else [ROOT / f"target/{p}/libjoulecast_fake_nvml.so" for p in ("debug", "debug/deps", "release", "release/deps")]
    for place in places:
        if place.exists():
            return place
    pytest.skip("tests/fake-nvml is not built: cargo build -p joulecast-fake-nvml")


def python(code: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **variables}, check=False)


def fake(folder: Path, **faults: bool) -> str:
    shutil.copy(library(), folder / "libnvidia-ml.so.1")
    (folder / "state.json").write_text(json.dumps({"load": 1.0, "faults": faults}))
    return str(folder / "libnvidia-ml.so.1")


def test_a_loop_is_measured(tmp_path: Path) -> None:
    done = python(LOOP, JOULECAST_NVML=fake(tmp_path))
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[0])
    assert told["gpu"] == "Fake H200" and told["steps"] == 24 and told["flags"] == []
    # 75 W and 550 W of load at the highest clock (tests/fake-nvml/src/law.rs); steps sleep for 50 ms and a little.
    assert told["power_w"]["measured"] == pytest.approx(625, rel=0.06)
    assert 0.05 <= told["time_s"]["measured"] < 0.08
    assert told["energy_j"]["measured"] == pytest.approx(told["power_w"]["measured"] * told["time_s"]["measured"])
    assert told["time_s"]["ratio"] == pytest.approx(told["time_s"]["measured"] / told["time_s"]["foreseen"])
    assert "ratio" in done.stdout.splitlines()[-1]
    # Nothing was set.
    assert json.loads((tmp_path / "state.json").read_text()).get("calls", []) == []


def test_what_cannot_be_believed_is_an_error(tmp_path: Path) -> None:
    for fault, why in (("frozen", "stood still"), ("falling", "fell"), ("no_counter", "no energy counter"), ("lost", "energy")):
        folder = tmp_path / fault
        folder.mkdir()
        done = python(LOOP, JOULECAST_NVML=fake(folder, **{fault: True}))
        assert done.returncode != 0 and why in done.stderr.splitlines()[-1], (fault, done.stdout, done.stderr)


def test_without_a_gpu_the_error_says_so() -> None:
    done = python("import joulecast as jc; jc.measure(gpu=0)", JOULECAST_NVML="/nowhere/libnvidia-ml.so.1")
    assert "MeasureError: no NVIDIA driver on this machine" in done.stderr
