"""The example for Ray, where that is installed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="ray is not installed: pip install 'joulecast[ray]'")
EXAMPLES = str(Path(__file__).resolve().parents[1] / "examples")


def test_a_search_on_two_workers_is_that_of_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    # Workers import the example, too.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [EXAMPLES, os.environ.get("PYTHONPATH")])))
    import pyarrow as pa
    from ray_search import search, widen

    best, kept, points, _ = search(60_000, 2)
    task = {"network": "resnet50", "gpu": "v100", "clock_from": 900, "clock_to": 1530, "clock_step": 5, "limit_from": 150, "limit_to": 301}
    alone = pa.concat_tables([widen(pa.Table.from_pylist([{**task, "batch": b}])) for b in range(1, points // (126 * 151) + 1)])
    assert kept == alone.num_rows
    least = alone.sort_by("energy_per_sample_j").slice(0, 10)
    assert best["energy_per_sample_j"].to_pylist() == least["energy_per_sample_j"].to_pylist()
