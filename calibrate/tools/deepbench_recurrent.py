#!/usr/bin/env python3
"""Recurrent layers of DeepBench's workbooks beside predictions: mean errors, how many lie in their intervals, ln(measured / predicted).

    python3 calibrate/tools/deepbench_recurrent.py PREDICT FOLDER

FOLDER holds DeepBench_NV_{1080Ti,M40,P100,TitanX,TitanX_Pascal,TitanXp,V100}.xlsx as DeepBench published them (needs openpyxl).
Their cells read nothing but states (TERAFLOPS of the workbooks are of these products alone): predicted are cells that read one value.
"""

import json
import math
import statistics
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import openpyxl

BOARDS = {
    "1080Ti": "gtx1080ti", "M40": "m40", "P100": "p100-pcie", "TitanX": "titan-x-maxwell", "TitanX_Pascal": "titan-x-pascal",
    "TitanXp": "titan-xp", "V100": "v100",
}  # fmt: skip
KINDS = {"Vanilla": "rnn", "LSTM": "lstm", "GRU": "gru"}
PHASES = ("forward", "backward_data", "backward_weights")


def rows(path):
    """(kind, hidden, batch, tokens, milliseconds of the three phases) of the sheet in 32 bits."""
    book = openpyxl.load_workbook(path, data_only=True, read_only=True)
    sheet = next(name for name in book.sheetnames if "FP32" in name)
    kind = None
    for line in book[sheet].iter_rows(values_only=True):
        cells = [cell for cell in line if cell is not None]
        if cells and isinstance(cells[0], str) and cells[0].startswith("Recurrent Layers"):
            kind = KINDS[cells[0].split("-")[-1].strip()]
            continue
        numbers = [cell for cell in cells if isinstance(cell, (int, float))]
        # Tables of other operations follow, whose numbers are no sizes of cells.
        if kind and len(numbers) >= 6 and 64 <= numbers[0] <= 4096 and numbers[1] <= 512 and 5 <= numbers[2] <= 1500:
            if all(0 < time < 5000 for time in numbers[3:6]):
                yield kind, *map(int, numbers[:3]), numbers[3:6]


def predicted(predict, folder, gpu, kind, hidden, batch, tokens):
    """Milliseconds of each phase: the value and the ends of its interval."""
    net = Path(folder) / f"{kind}_{hidden}_{tokens}.toml"
    net.write_text(
        f'schema = "network/1"\nname = "n"\ntitle = "n"\nlayers = [{{ name = "a", kind = "{kind}", hidden = {hidden} }}]\n'
        f"[inputs]\nx = {{ shape = [{tokens}, 1] }}\n"
    )
    words = ["--net", net, "--gpu", gpu, "--batch", str(batch), "--mode", "training", "--format", "json"]
    answer = json.loads(subprocess.run([predict, *words], check=True, capture_output=True).stdout)
    layers = {layer["phase"]: layer for layer in answer["layers"] if layer["kind"] == kind}
    return [[1e3 * layers[phase][key] for key in ("time_s", "time_s_p05", "time_s_p95")] for phase in PHASES]


def told(name, pairs):
    ratios = sorted(math.log(measured / of[0]) for measured, of in pairs)
    error = statistics.mean(abs(math.exp(-ratio) - 1) for ratio in ratios)
    held = statistics.mean(of[1] <= measured <= of[2] for measured, of in pairs)
    ends = [ratios[int(share * (len(ratios) - 1))] for share in (0.05, 0.5, 0.95)]
    print(f"{name:32} {len(pairs):4} {100 * error:6.0f} {100 * held:5.0f}   " + " ".join(f"{end:6.2f}" for end in ends))


def main():
    warnings.simplefilter("ignore")
    predict, sources = sys.argv[1:]
    print(f"{'':32} rows  off %  held %  ln(measured / predicted): 5 %, median, 95 %")
    everything = [[] for _ in PHASES]
    with tempfile.TemporaryDirectory() as folder:
        for board, gpu in BOARDS.items():
            own = [[] for _ in PHASES]
            for kind, hidden, batch, tokens, measured in rows(Path(sources) / f"DeepBench_NV_{board}.xlsx"):
                for phase, pair in enumerate(zip(measured, predicted(predict, folder, gpu, kind, hidden, batch, tokens))):
                    own[phase].append(pair)
                    everything[phase].append(pair)
            for phase, pairs in zip(PHASES, own):
                told(f"{gpu} {phase}", pairs)
    for phase, pairs in zip(PHASES, everything):
        told(phase, pairs)


if __name__ == "__main__":
    main()
