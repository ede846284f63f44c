"""Figures of the package, as its README quotes them: python predict/python/tools/bench.py [--wheel FILE]

Times are the least of several processes or the median of many calls; CPU seconds are those of this process and its threads. What is not
installed (polars, ray) is left out and named.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from typing import Callable, List

HERE = os.path.dirname(os.path.abspath(__file__))


def fresh(code: str, runs: int = 7) -> float:
    """The least that a new process prints."""
    command = [sys.executable, "-c", code]
    return min(float(subprocess.run(command, capture_output=True, text=True, check=True).stdout) for _ in range(runs))


def median_us(call: Callable[[int], object], calls: int = 2000) -> float:
    call(0)
    times: List[float] = []
    for i in range(calls):
        began = time.perf_counter()
        call(i)
        times.append(time.perf_counter() - began)
    return 1e6 * statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--wheel", help="its size is told")
    parser.add_argument("--no-ray", action="store_true")
    asked = parser.parse_args()
    if asked.wheel:
        print(f"wheel: {os.path.getsize(asked.wheel) / 1e6:.2f} MB")
    code = "import time; t = time.perf_counter(); import joulecast; print(1e3 * (time.perf_counter() - t))"
    print(f"import: {fresh(code):.1f} ms")
    for gpu, more in (("v100", ""), ("h200", ", precision='fp16'")):
        code = (
            "import time, joulecast as jc; t = time.perf_counter(); "
            f"jc.predict('resnet50', '{gpu}', batch=64{more}); print(1e3 * (time.perf_counter() - t))"
        )
        print(f"first call, resnet50 on {gpu}{more}: {fresh(code):.1f} ms")

    import joulecast as jc

    for net, gpu, options in (("lenet5", "v100", {}), ("resnet50", "v100", {}), ("resnet50", "h200", {"precision": "fp16"})):
        for what, call in (
            ("the same question", lambda _: jc.predict(net, gpu, batch=64, **options)),
            ("a batch that was not asked for before", lambda i: jc.predict(net, gpu, batch=1 + 2011 * i % 8191, **options)),
            ("batches 1 to 64 again and again", lambda i: jc.predict(net, gpu, batch=1 + i % 64, **options)),
            ("another limit", lambda i: jc.predict(net, gpu, batch=64, power_limit=200 + i / 100, **options)),
            ("another clock", lambda i: jc.predict(net, gpu, batch=64, clock=900 + i / 10, **options)),
        ):
            print(f"warm call, {net} on {gpu}, {what}: {median_us(call):.1f} us")
    step = jc.predict("resnet50", "v100", batch=64)
    print(f"a figure of it: {1e3 * median_us(lambda _: step.time_s):.0f} ns; its layers as a table: {median_us(lambda _: step.layers, 200):.0f} us")

    def sweep(threads: int) -> None:
        cpu, wall = time.process_time(), time.perf_counter()
        table = jc.sweep(
            "resnet50", "v100", batch=range(1, 54), clock=range(900, 1530, 5), power_limit=range(150, 300), threads=threads
        )
        swept, told = time.process_time() - cpu, ""
        try:
            import polars as pl

            frame = pl.DataFrame(table)
            told = f", as a polars frame {time.process_time() - cpu:.2f} ({frame.height} rows, {frame['error'].null_count()} predicted)"
        except ImportError:
            told = ", polars is not installed"
        print(f"sweep of {len(table)} points on {threads}: {swept:.2f} CPU s{told}; {time.perf_counter() - wall:.2f} s")

    for threads in (1, 2):
        sweep(threads)
    if asked.no_ray:
        return
    try:
        import ray  # noqa: F401
    except ImportError:
        print("ray is not installed")
        return
    examples = os.path.join(HERE, "..", "examples")
    sys.path.insert(0, examples)
    # Workers import the example, too.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [examples, os.environ.get("PYTHONPATH")]))
    import pyarrow as pa
    from ray_search import search, widen

    began = time.perf_counter()
    task = {"network": "resnet50", "gpu": "v100", "clock_from": 900, "clock_to": 1530, "clock_step": 5, "limit_from": 150, "limit_to": 301}
    alone = [widen(pa.Table.from_pylist([{**task, "batch": batch}])).num_rows for batch in range(1, 54)]
    print(f"the example's search in this process: {sum(alone)} kept, {time.perf_counter() - began:.1f} s")
    began = time.perf_counter()
    _, kept, points, took = search(1_000_000, 2)
    print(f"with Ray on 2 workers: {points} points, {kept} kept, {took:.1f} s; with its start {time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
