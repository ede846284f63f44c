#!/usr/bin/env python3
"""Makes a measured round of the sealed tests development: its rows as fits and judges read them, its networks, their roles.

  calibrate/tools/round_development.py 12 h100="h100 twelfth" h200="h200 thirteenth"

Writes data/measurements/sealed/round_N.csv (steps of one GPU that ran, `visit` as given for each board) and round_N/ (the networks
as they were sealed, where none lies there yet), and adds to data/splits.toml the networks that are conformal: those whose name's
SHA-256 after "conformal round N " begins with an even byte, in order. Running it again changes nothing. Visits go into
data/measurements/sealed/hosts.toml by hand, with the files of their hosts.
"""
import csv
import glob
import hashlib
import os
import shutil
import sys

from torch_sealed_round import listed

COLUMNS = ("network,mode,precision,batch,launch,layout,ms_per_iter,ms_p10,ms_p90,watts,joules_per_iter,sm_mhz_mean,sm_mhz_min,mem_mhz,temp_c,"
           "peak_mem_mib,reserved_mib,iters,throttle,utc,device,torch,cudnn").split(",")


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    number, visits = sys.argv[1], dict(word.split("=", 1) for word in sys.argv[2:])
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
    sealed, ours = f"data/sealed/round-{number}", f"data/measurements/sealed/round_{number}"
    rows, alone = [], listed("TEST_ALONE")
    for path in sorted(glob.glob(f"{sealed}/measured-*.csv")):
        with open(path, newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if row["error"] or row["gpus"] != "1" or row["network"] in alone:
                    continue
                board = next(board for board in visits if board.upper() in row["device"])
                rows.append([row[column] for column in COLUMNS] + [visits[board]])
    with open(f"{ours}.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS + ["visit"])
        writer.writerows(rows)
    os.makedirs(ours, exist_ok=True)
    names = sorted({row[0] for row in rows})
    for name in names:
        if not os.path.exists(f"{ours}/{name}.toml"):
            shutil.copy(f"{sealed}/nets/{name}.toml", f"{ours}/{name}.toml")
    conformal = [n for n in names if hashlib.sha256(f"conformal round {number} {n}".encode()).digest()[0] % 2 == 0]
    with open("data/splits.toml", encoding="utf-8") as file:
        roles = file.read()
    new = [f'{name} = "conformal"\n' for name in conformal if f"\n{name} = " not in roles]
    if new:
        with open("data/splits.toml", "w", encoding="utf-8") as file:
            file.write(roles.rstrip("\n") + f"\n# Round {number} of the sealed tests.\n" + "".join(new))
    print(f"{len(rows)} rows, {len(names)} networks, {len(conformal)} of them conformal, {len(new)} of these new in data/splits.toml")


main()
