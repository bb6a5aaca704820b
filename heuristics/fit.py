#!/usr/bin/env python3
# Owns the fit of a device profile's time-model constants to measured candidates.
"""
usage: heuristics/fit.py MEASURED.jsonl... --cases CASES.json... --profile heuristics/devices/h200.json [--fusor build/fusor]

MEASURED are lines of `fusor bench --all-candidates`, taken on the profile's device. Constants are moved one at a time, by
steps that shrink, as long as the choices among the measured candidates become better: the geometric mean of (time of the
choice / time of the best candidate) over the cases of the fitted half, and beside it, with a small weight, how far the
estimates are off. Networks of the other half only judge. Planning needs no GPU: `fusor bench --estimates` answers in a second.
Prints the constants and both halves' figures; --write stores the profile.
"""
import argparse
import collections
import json
import math
import os
import re
import statistics
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CONSTANTS = ("launch_s", "l2_bytes_per_s", "line_cost_16", "line_cost_32", "line_cost_64")
WEIGHT_OF_ESTIMATES = 0.05


def read_measured(files):
    """Case -> {configs: seconds}; later files replace earlier ones."""
    measured = collections.defaultdict(dict)
    for file in files:
        for line in open(file):
            row = json.loads(line)
            if "candidate" in row and "seconds" in row:
                measured[row["id"]][tuple(row["configs"])] = row["seconds"]
    return measured


def estimates(fusor, profile, cases):
    """Case -> {configs: estimated seconds}, every candidate."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(profile, file)
        file.flush()
        line = [fusor, "bench", *cases, "--estimates", "--candidates", "200", "--device", file.name]
        answer = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    found = collections.defaultdict(dict)
    for row in map(json.loads, answer.splitlines()):
        found[row["id"]][tuple(row["configs"])] = row["estimated_seconds"]
    return found


def judge(estimated, measured, ids):
    """Geometric mean and worst of choice / best among the measured candidates; mean of |log(estimate / time)|."""
    regrets, errors = [], []
    for case in ids:
        known = {configs: seconds for configs, seconds in measured[case].items() if configs in estimated[case]}
        if not known:
            continue
        choice = min(known, key=lambda configs: estimated[case][configs])
        regrets.append(math.log(known[choice] / min(known.values())))
        errors += [abs(math.log(estimated[case][configs] / seconds)) for configs, seconds in known.items()]
    return math.exp(statistics.fmean(regrets)), math.exp(max(regrets)), statistics.fmean(errors)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measured", nargs="+", metavar="MEASURED")
    parser.add_argument("--cases", nargs="+", required=True, metavar="FILE")
    parser.add_argument("--profile", required=True, metavar="FILE")
    parser.add_argument("--fusor", default=os.path.join(ROOT, "build", "fusor"), metavar="COMMAND")
    parser.add_argument("--write", action="store_true", help="store the fitted constants in the profile")
    options = parser.parse_args()

    about = {row["id"]: row.get("about", "") for file in options.cases for row in json.load(open(file))["cases"]}
    measured = {case: times for case, times in read_measured(options.measured).items() if case in about}
    judging = [case for case in measured if about[case].endswith("judged half")]
    fitting = [case for case in measured if case not in judging]
    with open(options.profile) as file:
        text = file.read()
    profile = json.loads(text)

    def loss(changed):
        regret, _, error = judge(estimates(options.fusor, changed, options.cases), measured, fitting)
        return math.log(regret) + WEIGHT_OF_ESTIMATES * error

    def show(title):
        found = estimates(options.fusor, profile, options.cases)
        for half, ids in (("fitted", fitting), ("judged", judging)):
            if ids:
                regret, worst, error = judge(found, measured, ids)
                print(f"{title}, {half}: {len(ids)} cases, choice / best {regret:.4f}, worst {worst:.2f}, estimates off by "
                      f"{math.exp(error) - 1:.3f}")

    show("before")
    best = loss(profile)
    for step in (1.3, 1.12, 1.05):
        for name in CONSTANTS:
            for factor in (step, 1 / step):
                while True:
                    changed = {**profile, name: float(f"{profile[name] * factor:.4g}")}
                    least = 1 if name.startswith("line_cost") else 0
                    if changed[name] <= least or (reached := loss(changed)) >= best - 1e-5:
                        break
                    profile, best = changed, reached
    show("after")
    for name in CONSTANTS:
        print(f'  "{name}": {profile[name]},')
    if options.write:
        for name in CONSTANTS:
            text = re.sub(rf'("{name}": )[^,\n]+', rf"\g<1>{profile[name]!r}", text)
        with open(options.profile, "w") as file:
            file.write(text)


if __name__ == "__main__":
    main()
