#!/usr/bin/env python3
# Owns the comparison of two builds of fusor on the suite: in one job, taking turns.
"""
usage: bench/before_after.py BEFORE AFTER [CASES...] [--rounds 3] [--runs 20] [--output before_after] [--seconds S]

BEFORE and AFTER are `fusor` commands. CASES as for bench/compare.py. For each case a round is one block of RUNS runs of each
build; which one begins alternates. A build's time is the median over the rounds of its blocks' medians, the ratio is of speed
(above 1: AFTER is faster). Writes OUTPUT.json after each case and prints the geometric mean, the least ratio, the cases below
0.97, and both sums of compile time. --seconds ends the job early, and says how many cases it has.
"""
import argparse
import json
import math
import statistics
import sys
import time

from compare import Fusor, read_cases


def compare_case(case, sides, rounds, runs):
    """Blocks of both builds, in turns; a failed block is told as an error."""
    row = {"id": case["id"], "group": case["group"], "before": [], "after": []}
    for i in range(rounds):
        order = ("before", "after") if i % 2 == 0 else ("after", "before")
        for name in order:
            answer = sides[name].block(case["id"], runs)
            if "error" in answer or answer.get("passed") is False:
                row["error"] = f"{name}: {answer.get('error', 'wrong result')}"
                return row
            row[name].append(answer["seconds"])
            row[name + "_compile_ms"] = answer.get("compile_ms", 0)
            row[name + "_configs"] = answer.get("configs")
    row["ratio"] = statistics.median(row["before"]) / statistics.median(row["after"])
    return row


def summary(rows):
    failed = [row for row in rows if "error" in row]
    good = [row for row in rows if "ratio" in row]
    lines = [f"error: {row['id']}: {row['error']}" for row in failed]
    if good:
        mean = math.exp(statistics.fmean(math.log(row["ratio"]) for row in good))
        least = min(good, key=lambda row: row["ratio"])
        lines.append(f"{len(good)} cases: geometric mean {mean:.4f}, least {least['ratio']:.3f} ({least['id']})")
        lines += [f"  below 0.97: {row['id']} {row['ratio']:.3f}" for row in good if row["ratio"] < 0.97]
        lines += [f"  another choice: {row['id']}: {row['before_configs']} -> {row['after_configs']}"
                  for row in good if row["before_configs"] != row["after_configs"]]
        for name in ("before", "after"):
            times = sorted(row[name + "_compile_ms"] for row in good)
            lines.append(f"  compile ms {name}: sum {sum(times):.0f}, p50 {times[len(times) // 2]:.0f}, max {times[-1]:.0f}")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--flush", type=int, default=512)
    parser.add_argument("--output", default="before_after")
    parser.add_argument("--seconds", type=float, default=math.inf)
    options = parser.parse_args()
    files, cases = read_cases(options.cases)
    sides = {name: Fusor(getattr(options, name), files, options.flush, verify=False) for name in ("before", "after")}
    end = time.monotonic() + options.seconds
    rows = []
    for case in cases:
        if time.monotonic() > end:
            print(f"out of time: {len(rows)} of {len(cases)} cases")
            break
        rows.append(compare_case(case, sides, options.rounds, options.runs))
        with open(options.output + ".json", "w") as stream:
            json.dump(rows, stream, indent=1)
        print(rows[-1]["id"], rows[-1].get("error") or f"{rows[-1]['ratio']:.3f}", file=sys.stderr, flush=True)
    for side in sides.values():
        side.close()
    print(summary(rows))
    return 1 if any("error" in row for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
