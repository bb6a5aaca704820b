"""Measures what a call from Python costs above one from C++, and the import. Not a test: times are those of the
machine. The graph is so small that on the CPU device the call is all there is.

usage: overhead.py [--cpp SECONDS] [--device DEVICE]    --cpp: what tests/python/call_cost printed, to subtract"""

import argparse
import subprocess
import sys
import time

import fusor
import numpy


def best(body, repeat=500, rounds=200):
    """Seconds of one call: the best round, so that other work on the machine does not count."""
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        for _ in range(repeat):
            body()
        times.append((time.perf_counter() - begin) / repeat)
    return min(times)


def import_seconds():
    code = "import time; t = time.perf_counter(); import fusor; print(time.perf_counter() - t)"
    return min(float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(5))


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--device", default="cpu")
    options = options.parse_args()
    g = fusor.GraphBuilder("tiny")
    x, w, b = g.input("x", (1,)), g.input("w", (1,)), g.input("b", (1,))
    g.output(x * w + b, "y")
    exe = fusor.load(fusor.build(g.finish(), options.device))
    if options.device == "cpu":
        arrays = [numpy.ones(1, numpy.float32) for _ in range(4)]
        bare = [int(a.ctypes.data) for a in arrays]
    else:
        import torch

        arrays = [torch.ones(1, device="cuda") for _ in range(4)]
        bare = [a.data_ptr() for a in arrays]
    bound = exe.bind(*arrays)
    x, w, b, y = arrays
    rows = {
        "bound()": best(bound),
        "run(4 addresses)": best(lambda: exe.run(*bare)),
        f"run(4 {type(x).__module__.partition('.')[0]} arrays)": best(lambda: exe.run(x, w, b, y)),
        "run(4 arrays by name)": best(lambda: exe.run(x=x, w=w, b=b, y=y)),
    }
    for name, seconds in rows.items():
        print(f"{name:24} {seconds * 1e6:6.2f} us")
    base = rows["bound()"]
    print(f"checks of 4 arrays: {(rows[list(rows)[2]] - base) * 1e6:.2f} us above a bound run")
    print(f"import: {import_seconds() * 1e3:.0f} ms")


if __name__ == "__main__":
    main()
