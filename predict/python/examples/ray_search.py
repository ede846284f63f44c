"""A search over a million points with Ray Data: which GPU, batch, clock and limit answer with the least energy within a latency.

    pip install 'joulecast[ray]'
    python ray_search.py [--points 1000000] [--workers 2]

On a cluster the same code runs on its workers: `ray.init()` finds it by RAY_ADDRESS. A row of the input is a *task* (network, GPU,
batch), which a worker widens to all clocks and limits: points that were rows of the input would go through the object store twice.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import pyarrow as pa


def widen(tasks: pa.Table) -> pa.Table:
    """Tasks with every clock and limit of theirs, predicted, and what is too slow left out."""
    import joulecast as jc
    import pyarrow.compute as pc

    points = []
    for task in tasks.to_pylist():
        clocks = pa.array(range(task["clock_from"], task["clock_to"], task["clock_step"]), pa.float64())
        limits = pa.array(range(task["limit_from"], task["limit_to"]), pa.float64())
        count = len(clocks) * len(limits)
        points.append(
            pa.table(
                {
                    "network": pa.array([task["network"]] * count).dictionary_encode(),
                    "gpu": pa.array([task["gpu"]] * count).dictionary_encode(),
                    "batch": pa.array([task["batch"]] * count, pa.int32()),
                    "clock_mhz": pa.array([c for c in clocks.to_pylist() for _ in range(len(limits))], pa.float64()),
                    "power_limit_w": pa.concat_arrays([limits] * len(clocks)),
                }
            )
        )
    table = pa.concat_tables(points, promote_options="default").unify_dictionaries()
    # Ray runs a task on a core: one thread.
    predicted = pa.table(jc.map_table(table, workers=1))
    kept = predicted.filter(pc.less_equal(predicted["time_s"], 0.1))
    columns = ["network", "gpu", "batch", "clock_mhz", "power_limit_w", "time_s", "power_w", "energy_per_sample_j"]
    result = kept.select(columns)
    for i, name in enumerate(("network", "gpu")):
        result = result.set_column(i, name, result[name].cast(pa.string()))
    return result


def search(points: int, workers: int) -> Any:
    """The ten best points, how many were kept, and how long it took."""
    import ray

    ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False, ignore_reinit_error=True)
    clocks, limits = range(900, 1530, 5), range(150, 301)
    batches = max(1, round(points / (len(clocks) * len(limits))))
    tasks = [
        {
            "network": "resnet50", "gpu": "v100", "batch": batch,
            "clock_from": clocks.start, "clock_to": clocks.stop, "clock_step": clocks.step,
            "limit_from": limits.start, "limit_to": limits.stop,
        }
        for batch in range(1, batches + 1)
    ]  # fmt: skip
    began = time.perf_counter()
    # Blocks of at least 16 tasks, so that each worker reads calibrations once for many; without a size of the batch, or Ray would
    # bundle all of these few rows into one task.
    data = ray.data.from_items(tasks, override_num_blocks=max(1, min(4 * workers, len(tasks) // 4)))
    found = data.map_batches(widen, batch_format="pyarrow", batch_size=None)
    tables = [pa.table(block) if not isinstance(block, pa.Table) else block for block in ray.get(list(found.to_arrow_refs()))]
    whole = pa.concat_tables(tables)
    took = time.perf_counter() - began
    best = whole.sort_by("energy_per_sample_j").slice(0, 10)
    return best, whole.num_rows, len(tasks) * len(clocks) * len(limits), took


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    best, kept, asked_points, took = search(asked.points, asked.workers)
    print(f"{asked_points} points in {took:.1f} s on {asked.workers} workers, {asked_points / took:.0f} a second; {kept} kept")
    for row in best.to_pylist():
        print(row)


if __name__ == "__main__":
    main()
