"""The table of models that live modules are read of (`tools/models_table.py`), against what the README says of it."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Dict, List

import joulecast as jc
import pytest

FOLDER = Path(__file__).resolve().parents[1]
with open(FOLDER / "models.csv", newline="", encoding="utf-8") as file:
    ROWS: List[Dict[str, str]] = list(csv.DictReader(file))
READ = [row for row in ROWS if row["read"] == "True"]


def near(row: Dict[str, str], columns: List[str]) -> bool:
    return all(row[column] and abs(float(row[column]) - 1) <= 0.01 for column in columns)


def test_a_hundred_models_are_read_with_exact_parameters() -> None:
    assert len(READ) >= 100 and len({(row["library"], row["model"]) for row in ROWS}) == len(ROWS)
    exact = [row for row in READ if row["parameters_used"] == row["parameters_read"]]
    assert len(exact) >= 100
    # What a pass reads is of the module.
    assert all(int(row["parameters_read"]) <= int(row["parameters"]) for row in exact)
    assert all(float(row["time_ms"]) > 0 and float(row["energy_j"]) > 0 for row in READ)
    assert all(row["error"] for row in ROWS if row not in READ)


def test_the_readme_says_what_the_table_has() -> None:
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    compared = [row for row in READ if row["time_to_onnx"]]
    zoo = [row for row in READ if row["zoo"]]
    vision = [row for row in ROWS if row["library"] == "torchvision"]
    macs = [row for row in zoo if abs(float(row["gmac"]) / float(row["gmac_zoo"]) - 1) <= 0.01]
    for said, counted in (
        (r"what came of (\d+) models", len(ROWS)),
        (r"(\d+) rows are of today's calibrations", sum(bool(row["torch"]) for row in ROWS)),
        (r"(\d+) are read \(torchvision", len(READ)),
        (r"torchvision (\d+) of \d+\)", sum(row["read"] == "True" for row in vision)),
        (r"torchvision \d+ of (\d+)\)", len(vision)),
        (r"(\d+) with exactly the parameters", sum(row["parameters_used"] == row["parameters_read"] for row in READ)),
        (r"Of (\d+) that are compared with the exporter's own file", len(compared)),
        (r"exporter's own file (\d+) have its time and energy", sum(near(row, ["time_to_onnx", "energy_to_onnx"]) for row in compared)),
        (r"Of (\d+) in the zoo", len(zoo)),
        (r"in the zoo (\d+) have its multiply-accumulates", len(macs)),
        (r"within 1 % and (\d+) its time and energy", sum(near(row, ["time_to_zoo", "energy_to_zoo"]) for row in zoo)),
    ):
        found = re.search(said, text)
        assert found and int(found[1]) == counted, f"{said}: {found and found[1]} said, {counted} counted"


@pytest.mark.parametrize("row", [row for row in READ if row["zoo"] and row["gmac_zoo"]], ids=lambda row: row["zoo"])
def test_what_the_table_has_of_the_zoo_is_what_the_zoo_has(row: Dict[str, str]) -> None:
    macs = sum(layer["macs"] or 0 for layer in jc.describe(row["zoo"]).to_pylist()) / 1e9
    assert macs == pytest.approx(float(row["gmac_zoo"]), rel=1e-5)
