"""What files of hosts (`host/1`, `calibrate host`) say of a visit's host: how many times as long as the profile's table launches take."""
import statistics
import tomllib


def group(mode, precision):
    """The group of launches that decides on a step."""
    if mode == "infer":
        return "inference"
    return "autocast" if precision in ("fp16", "bf16") else "training"


def factors(paths):
    """Geometric means over files, by group; none without files."""
    found = []
    for path in paths:
        with open(path, "rb") as file:
            found.append(tomllib.load(file)["factor"])
    return {name: statistics.geometric_mean(f[name] for f in found) for name in found[0]} if found else None
