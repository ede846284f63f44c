"""What the README shows of Spark, Dask and polars, each where it is installed: the code between its marks is what runs."""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path
from typing import Any, Dict

import joulecast as jc
import pytest

pa = pytest.importorskip("pyarrow")
README = Path(__file__).resolve().parents[1] / "README.md"
COLUMNS = ["network", "gpu", "batch"]
ROWS = [("resnet18", "v100", batch) for batch in range(1, 17)] + [("lenet5", "t4", batch) for batch in range(1, 5)]
WANTED = {row: jc.predict(row[0], row[1], batch=row[2]).time_s for row in ROWS}


def shown(of: str) -> str:
    """The block of code under a point of the README."""
    block = re.search(rf"\* \*\*{of}\*\*.*?```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    return textwrap.dedent(block[1])


def run(code: str, space: Dict[str, Any]) -> Any:
    """The value of the last expression."""
    *before, last = code.strip().split("\n\n")
    exec("\n\n".join(before), space)
    return eval(last, space)


def check(found: Dict[Any, float]) -> None:
    assert found.keys() == WANTED.keys()
    for row, time in found.items():
        assert time == pytest.approx(WANTED[row], rel=1e-12)


def test_dask() -> None:
    dd = pytest.importorskip("dask.dataframe", reason="dask is not installed")
    pd = pytest.importorskip("pandas")
    frame = dd.from_pandas(pd.DataFrame(ROWS, columns=COLUMNS), npartitions=3)
    found = run(shown("Dask"), {"pa": pa, "jc": jc, "frame": frame}).compute()
    assert list(found.index) == list(range(len(ROWS)))
    check({(r.network, r.gpu, r.batch): r.time_s for r in found.itertuples()})


def test_polars() -> None:
    pl = pytest.importorskip("polars", reason="polars is not installed")
    frame = pl.DataFrame(ROWS, schema=COLUMNS, orient="row")
    at_once = pl.DataFrame(jc.map_table(frame))
    check({(r["network"], r["gpu"], r["batch"]): r["time_s"] for r in at_once.iter_rows(named=True)})
    lazy = frame.lazy().map_batches(lambda part: pl.DataFrame(jc.map_table(part)), schema=at_once.schema)
    assert lazy.collect().equals(at_once)


def test_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    sql = pytest.importorskip("pyspark.sql", reason="pyspark is not installed")
    pytest.importorskip("pandas")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    spark = sql.SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    frame = spark.createDataFrame(ROWS, "network string, gpu string, batch long")
    code = shown("Spark").replace("repartition(64)", "repartition(3)")
    found = run(code, {"pa": pa, "jc": jc, "frame": frame, "__name__": "__main__"}).collect()
    check({(r.network, r.gpu, r.batch): r.time_s for r in found})
    spark.stop()
