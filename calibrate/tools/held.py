#!/usr/bin/env python3
"""Which share of its limit a board draws while that holds it back: of measured steps whose clock was below that of the rest.

  calibrate/tools/held.py data/sealed/round-7/measured-*.csv data/sealed/round-14/measured-*.csv

Takes files of measured rounds (`watts`, `sm_mhz_mean`, `device`), CUDA graphs of one GPU that ran for seconds; prints rows, median, 10 % and 90 % quantiles by board. Needs nothing but Python.
"""
import csv
import statistics
import sys

# Below this share of the highest clock a board was held by its limit; both boards' limit, in watts.
HELD, HIGHEST, LIMIT = 0.97, 1980.0, 700.0


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    shares = {}
    for path in sys.argv[1:]:
        with open(path, newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if row["error"] or row["launch"] != "graph" or row.get("gpus", "1") != "1" or not row["watts"]:
                    continue
                if float(row["sm_mhz_mean"] or HIGHEST) < HELD * HIGHEST:
                    shares.setdefault(row["device"], []).append(float(row["watts"]) / LIMIT)
    for device, of in sorted(shares.items()):
        low, *_, high = statistics.quantiles(of, n=10)
        print(f"{device}: {len(of)} steps, median {statistics.median(of):.3f}, from {low:.3f} to {high:.3f} of {LIMIT:.0f} W")


if __name__ == "__main__":
    main()
