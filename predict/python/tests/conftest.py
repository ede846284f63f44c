"""What tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def onnx_file() -> Path:
    """A graph without weights, as PyTorch exports ResNet-50."""
    path = ROOT / "model/read/tests/onnx/resnet50.onnx"
    if not path.exists():
        pytest.skip("not in a checkout of the repository")
    return path
