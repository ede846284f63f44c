"""The notebooks: every cell runs, in order, in a fresh namespace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.ipynb")))
def test_every_cell_runs(name: str) -> None:
    cells = json.loads((FOLDER / name).read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    if any("import optuna" in text for text in code):
        pytest.importorskip("optuna", reason="optuna is not installed")
    space: dict[str, object] = {"__name__": "__main__"}
    for number, text in enumerate(code, 1):
        exec(compile(text, f"{name}, code cell {number}", "exec"), space)
    # What readers see was run.
    assert any(cell.get("outputs") for cell in cells), f"{name} was committed without what it shows"
