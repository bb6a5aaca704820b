"""In place: an output may take the memory of an input that its own ops read element by element."""

import fusor
import numpy as np

g = fusor.GraphBuilder("accumulate")
total, x = g.input("total", (1024,)), g.input("x", (1024,))
g.output(total + x, "next")
exe = fusor.load(fusor.build(g.finish(), "cpu"))

memory, x = np.zeros(1536, np.float32), np.full(1024, 0.5, np.float32)
total = memory[:1024]
for _ in range(8):
    exe.run(total=total, x=x, next=total)
assert (total == 4).all()
print("total", total[7])

try:  # half of the output over the input: refused before anything runs
    exe.run(total=total, x=x, next=memory[512:])
    raise SystemExit("an overlap was not refused")
except fusor.Error as error:
    print("refused:", error)
