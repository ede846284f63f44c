"""Tables: sweeps, comparisons, optima, plans, loads; Arrow in and out."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any, List

import pytest

import joulecast as jc
from conftest import ROOT

pa = pytest.importorskip("pyarrow")


def test_a_sweep_is_what_predict_says() -> None:
    table = jc.sweep(["resnet50", "vgg16"], ["v100", "t4"], batch=[1, 64], power_limit=[None, 65], clock=None)
    rows = pa.table(table).to_pylist()
    assert len(rows) == len(table) == 16 and rows == table.to_pylist()
    for row in rows:
        limits = {} if row["power_cap_w"] is None else {"power_limit": row["power_cap_w"]}
        if row["error"] is None:
            step = jc.predict(row["network"], row["gpu"], batch=row["batch"], **limits)
            for name in ("time_s", "time_s_p95", "power_w", "energy_j", "memory_bytes", "time_tier"):
                alone = step.calibration["time_tier"] if name == "time_tier" else getattr(step, name)
                assert row[name] == (pytest.approx(alone, rel=1e-9) if isinstance(alone, float) else alone), name
        else:
            with pytest.raises(ValueError):
                jc.predict(row["network"], row["gpu"], batch=row["batch"], **limits)


def test_shards_are_the_sweep() -> None:
    asked: Any = {"batch": range(1, 8), "power_limit": [None, 200, 250]}
    whole = jc.sweep("alexnet", "v100", **asked).to_pylist()
    parts = [jc.sweep("alexnet", "v100", shard=f"{i}/3", **asked).to_pylist() for i in (1, 2, 3)]
    assert sum(parts, []) == whole


class Bar:
    """As tqdm's."""

    def __init__(self, total: int = 0, **_: Any) -> None:
        self.total, self.done, self.closed = total, 0, False
        Bar.last = self

    def update(self, rows: int) -> None:
        self.done += rows

    def close(self) -> None:
        self.closed = True


def test_progress_is_told() -> None:
    jc.sweep("alexnet", "v100", batch=range(1, 40), clock=range(800, 1400, 10), progress=Bar)
    bar: Any = Bar.last  # type: ignore[attr-defined]
    assert bar.done == bar.total == 39 * 60 and bar.closed


class Broken(Bar):
    def update(self, rows: int) -> None:
        raise OSError("no terminal")


def test_an_exception_of_the_bar_ends_the_sweep() -> None:
    with pytest.raises(OSError, match="no terminal"):
        jc.sweep("alexnet", "v100", batch=[1, 2], progress=Broken)


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_ctrl_c_ends_a_sweep(request: pytest.FixtureRequest) -> None:
    # Programs that run in the background may have been started without a handler.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    began = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        jc.sweep(["resnet50", "densenet121"], "all", batch=range(1, 4096), threads=1)
    assert time.perf_counter() - began < 60


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_ctrl_c_ends_other_answers(request: pytest.FixtureRequest) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    many = pa.table({"network": ["densenet121"] * 100_000, "gpu": ["v100"] * 100_000, "batch": [1 + i % 4000 for i in range(100_000)]})
    bars: List[Bar] = []

    def bar(**options: Any) -> Bar:
        bars.append(Bar(**options))
        return bars[0]

    for work in (
        lambda: jc.map_table(many, progress=bar),
        lambda: jc.serve("llama3_1_70b", "h100", tensor_parallel=8, rate=2, prompt=2048, answer=512, requests=100_000),
    ):
        timer = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            work()
    assert bars[0].total == 100_000 and 0 <= bars[0].done < 100_000 and bars[0].closed


def test_comparisons_optima_and_layouts_have_rows() -> None:
    compared = jc.compare(["resnet50", "vgg16"], ["v100", "t4"], batch=[1, 64], price={"v100": 2.5, "t4": 0.4})
    assert compared.table.num_rows == 8 and compared.to_dict()["schema"] == "comparison/1"
    assert pa.table(compared).num_rows == 8 and "<svg" in compared.plot().svg
    within = jc.compare("resnet50", ["t4", "v100"], precision="fp16", target_latency=20).table.to_pylist()
    assert len(within) == 2 and all(row["largest_within_budget"] and row["time_s"] <= 0.02 for row in within)
    found = jc.optimize("resnet50", "v100", batch=64, max_slowdown=5)
    rows = found.table.to_pylist()
    assert sum(row["best"] for row in rows) == 1 and found.plot().svg.startswith("<svg")
    assert jc.optimize(["resnet50", "vgg16"], "v100", batch=64).table.num_rows > len(rows)
    laid = jc.layouts("llama3_1_70b", "h100", precision="bf16", batch=8, sequence=1024, generate=128)
    assert any(row["fits"] for row in laid.table.to_pylist())
    for answer in (compared, found, laid):
        assert '<div class="joulecast">' in answer._repr_html_() and answer.to_markdown() and str(answer)


def test_a_load_and_a_plan() -> None:
    served = jc.serve("llama3_8b", "h100", rate=2, prompt=256, answer=64, requests=200)
    assert served.to_dict()["requests"] == 200 and served.table.num_rows >= 1
    with pytest.raises(ValueError, match="which load"):
        jc.serve("llama3_8b", "h100", prompt=256, answer=64)
    file = ROOT / "data/capacity/tagging.toml"
    if file.exists():
        planned = jc.plan(file)
        assert planned.to_dict()["schema"] == "capacity_plan/1" and planned.table.num_rows > 3
        assert jc.plan(text=file.read_text()).to_dict()["candidates"] == planned.to_dict()["candidates"]
    with pytest.raises(FileNotFoundError):
        jc.plan("none.toml")
    with pytest.raises(ValueError, match="line 1"):
        jc.plan(text="nothing")
    with pytest.raises(TypeError):
        jc.plan()


def test_what_is_built_in() -> None:
    gpus, nets = jc.gpus().to_pylist(), jc.nets().to_pylist()
    assert {"v100", "h200", "t4"} <= {gpu["name"] for gpu in gpus} and all(gpu["memory_bytes"] > 0 for gpu in gpus)
    assert {"resnet50", "vgg16"} <= {net["name"] for net in nets} and all(net["parameters"] > 0 for net in nets)
    assert "alexnet" in jc.nets()._repr_html_()


def test_rows_are_predicted_where_they_stand() -> None:
    swept = pa.table(jc.sweep(["resnet50", "vgg16"], ["v100", "h200"], batch=[8, 64], power_limit=[None, 250], clock=[None, 1200]))
    asked = swept.select(["network", "gpu", "batch", "clock_mhz", "power_cap_w"]).append_column("id", pa.array(range(32)))
    asked = asked.take(pa.array([(7 * i) % 32 for i in range(32)]))
    answered = pa.table(jc.map_table(asked, workers=2))
    assert answered.column_names[:6] == asked.column_names and answered.num_rows == 32
    expected = {row["id"]: row for row in swept.append_column("id", pa.array(range(32))).to_pylist()}
    for row in answered.to_pylist():
        for name in ("time_s", "energy_j", "power_w", "fits_in_memory", "time_tier", "error"):
            theirs = expected[row["id"]][name]
            # Batches side by side are added up in another order.
            assert row[name] == (pytest.approx(theirs, rel=1e-12) if isinstance(theirs, float) else theirs), name
    # What was made is made anew, not twice.
    assert pa.table(jc.map_table(answered)).column_names == answered.column_names


def test_a_row_that_is_wrong_is_alone() -> None:
    table = pa.table({"net": ["alexnet", "alexnot", "alexnet", None], "batch": pa.array([1, 1, 0, 1], pa.int16()), "note": [[1], [], None, [2]]})
    rows = pa.table(jc.map_table(table, gpu="v100")).to_pylist()
    assert [row["note"] for row in rows] == [[1], [], None, [2]]
    assert rows[0]["error"] is None and rows[0]["time_s"] > 0
    assert "nearest: alexnet" in rows[1]["error"] and "batch" in rows[2]["error"] and rows[3]["error"]
    assert [row["time_s"] is None for row in rows] == [False, True, True, True]


def test_options_of_a_table_are_told_before_any_row() -> None:
    table = jc.sweep("alexnet", "v100", batch=[1, 2])
    with pytest.raises(TypeError, match="colour"):
        jc.map_table(table, colour="red")
    with pytest.raises(ValueError, match="precision"):
        jc.map_table(table, precision="fp3")
    # What an option needs a column has.
    trained = jc.map_table(jc.sweep("alexnet", "v100", batch=1, mode="training"), optimizer="adam")
    assert trained.to_pylist()[0]["error"] is None


def test_tables_of_all_makers_are_read() -> None:
    data = {"network": ["alexnet", "vgg16"] * 2, "gpu": ["v100"] * 4, "batch": [1, 2, 3, 4]}
    plain = pa.table(data)
    makers: List[Any] = [plain, plain.to_reader(), jc.sweep(["alexnet", "vgg16"], "v100", batch=[1, 2])]
    makers.append(plain.set_column(0, "network", plain["network"].dictionary_encode()))
    makers.append(plain.set_column(2, "batch", plain["batch"].cast(pa.float64())))
    makers.append(plain.slice(0, 0))
    for table in makers:
        assert set(pa.table(jc.map_table(table))["error"].to_pylist()) <= {None}
    for wrong, kind in (({"network": ["alexnet"]}, KeyError), ({"gpu": ["v100"]}, KeyError)):
        with pytest.raises(kind, match="no column"):
            jc.map_table(pa.table(wrong))
    with pytest.raises(TypeError, match="__arrow_c_stream__"):
        jc.map_table([1, 2])
    with pytest.raises(TypeError, match="batch is of type"):
        jc.map_table(pa.table({"network": ["alexnet"], "gpu": ["v100"], "batch": [[1]]}))


def test_polars_reads_them() -> None:
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame(jc.sweep("alexnet", "v100", batch=range(1, 100), clock=range(800, 1400, 5)))
    assert frame.height == 99 * 120 and frame["network"].unique().to_list() == ["alexnet"]


def test_rows_are_read_one_by_one() -> None:
    table = jc.sweep("lenet5", ["v100", "t4"], batch=[1, 2])
    assert [table[i] for i in range(4)] == list(table) == table.to_pylist()
    assert table[-1] == table[3] and table[-4] == table[0]
    for row in (4, -5):
        with pytest.raises(IndexError, match=f"^the table has 4 rows, and none is {row}$"):
            table[row]
