"""Tests what a call from Python costs above a run whose arrays were checked before, and the import. The graph is so small
that on the CPU device the call is all there is; there times are those of the processor, which other programs do not change.

usage: overhead.py [--device DEVICE]"""

import argparse
import subprocess
import sys
import time

import fusor
import numpy


MOST_CHECKS = 3e-6  # seconds that run() may cost above bound()
MOST_IMPORT = 0.1


def best(bodies, clock, settle=lambda: None, repeat=200, rounds=500):
    """Seconds of one call of each body: the best round, so that other work on the machine does not count. Bodies take turns,
    so that a change of the processor's clock meets all. Each round begins with an empty queue: a full one makes calls wait
    for the GPU."""
    times = {name: [] for name in bodies}
    for _ in range(rounds):
        for name, body in bodies.items():
            settle()
            begin = clock()
            for _ in range(repeat):
                body()
            times[name].append((clock() - begin) / repeat)
    return {name: min(each) for name, each in times.items()}


def import_seconds():
    code = "import time; t = time.process_time(); import fusor; print(time.process_time() - t)"
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
    settle = fusor.synchronize if options.device != "cpu" else lambda: None
    clock = time.thread_time if options.device == "cpu" else time.perf_counter
    bound = exe.bind(*arrays)
    x, w, b, y = arrays
    calls = {
        "bound()": bound,
        "run(4 addresses)": lambda: exe.run(*bare),
        f"run(4 {type(x).__module__.partition('.')[0]} arrays)": lambda: exe.run(x, w, b, y),
        "run(4 arrays by name)": lambda: exe.run(x=x, w=w, b=b, y=y),
    }
    rows = best(calls, clock, settle)
    for name, seconds in rows.items():
        print(f"{name:24} {seconds * 1e6:6.2f} us")
    checks = {name: seconds - rows["bound()"] for name, seconds in rows.items()}
    imported = import_seconds()
    print(f"import: {imported * 1e3:.0f} ms")
    slow = [f"{name}: {seconds * 1e6:.2f} us above bound()" for name, seconds in checks.items() if seconds > MOST_CHECKS]
    if imported > MOST_IMPORT:
        slow.append(f"import: {imported * 1e3:.0f} ms")
    print("\n".join(f"too slow: {each}" for each in slow) or "fast enough")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
