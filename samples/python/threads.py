"""Threads: one executable runs in many at once; runs release the GIL, and each thread has a workspace of its own."""

from concurrent.futures import ThreadPoolExecutor

import fusor
import numpy as np

g = fusor.GraphBuilder("two matmuls")
x, w = g.input("x", (64, 64)), g.input("w", (64, 64))
g.output(x @ w @ w, "y")
exe = fusor.load(fusor.build(g.finish()))
identity = np.eye(64, dtype=np.float32)


def work(member):
    x = np.full((64, 64), member, np.float32)
    return all((exe(x, identity) == x).all() for _ in range(10))


with ThreadPoolExecutor(4) as team:
    right = list(team.map(work, range(8)))
assert all(right), right
print(f"{sum(right)} of {len(right)} pieces of work are right")
