"""Graphs as JSON: another program's or another language's graph is text, and every mistake in it is named."""

import fusor
import numpy as np

TEXT = """{
  "format": 1, "kind": "graph", "name": "rows",
  "tensors": [{"name": "x", "type": "fp32", "dims": [8, 16]}, {"name": "y", "type": "fp32", "dims": [8, 16]}],
  "ops": [{"name": "p", "op": "softmax", "axis": -1, "inputs": ["x"], "outputs": ["y"]}]
}"""

graph = fusor.graph_from_json(TEXT)
assert fusor.graph_from_json(graph.to_json()) == graph
x = np.random.default_rng(0).standard_normal((8, 16), np.float32)
y = fusor.load(fusor.build(graph, "cpu"))(x)
e = np.exp(x - x.max(-1, keepdims=True))
np.testing.assert_allclose(y, e / e.sum(-1, keepdims=True), rtol=1e-5)
print(graph, "is right")

try:
    fusor.graph_from_json(TEXT.replace('"axis": -1', '"axis": 2'))
    raise SystemExit("a wrong axis was not refused")
except fusor.Error as error:
    print("refused:", error)
