# Owns graphs of two products without a softmax between them, and of their gradients, for `fusor bench`.
"""python bench/scores_without_softmax.py FOLDER; fusor bench FOLDER/*.json"""
import math
import pathlib
import sys

import fusor

TYPE = "bf16"


class Chain:
    """A graph of queries, keys and values; save() writes it."""

    def __init__(self, name):
        self.name, self.g = name, fusor.GraphBuilder(name)

    def input(self, name, *dims, type=TYPE):
        return self.g.input(name, dims, type)

    def operands(self, batch, heads, length, head, value=None):
        return (self.input("q", batch, heads, length, head), self.input("k", batch, heads, length, head),
                self.input("v", batch, heads, length, value or head))

    def turned(self, x):
        rank = len(x.dims)
        return self.g.transpose(x, (*range(rank - 2), rank - 1, rank - 2))

    def scores(self, q, k):
        return q @ self.turned(k)

    def sees(self, x):
        return self.g.gen_index(x, -2) >= self.g.gen_index(x, -1)

    def causal(self, x):
        return self.g.binary_select(x, 0.0, self.sees(x))

    def as_number(self, x):
        return self.g.identity(x, type="fp32")

    def output(self, x, name="o"):
        self.g.output(x, name, type=TYPE)

    def save(self, folder):
        (folder / f"{self.name}.json").write_text(self.g.finish().to_json())


def sigmoid(batch, heads, length, head, is_causal):
    c = Chain(f"sigmoid-{length}-d{head}{'-causal' if is_causal else ''}")
    q, k, v = c.operands(batch, heads, length, head)
    p = c.g.sigmoid(c.scores(q, k) * head**-0.5 - math.log(length))
    c.output((c.causal(p) if is_causal else p) @ v)
    return c


def hstu(batch, heads, length, head, multiplies):
    """swish(q k^T + bias) / n, as in HSTU (Zhai et al. 2024); `multiplies`: the mask is a factor."""
    c = Chain(f"hstu-{length}-d{head}{'-factor' if multiplies else ''}")
    q, k, v = c.operands(batch, heads, length, head)
    p = c.g.swish(c.scores(q, k) * 0.125 + c.input("bias", 1, 1, length, length)) * (1 / length)
    c.output((p * c.as_number(c.sees(p)) if multiplies else c.causal(p)) @ v)
    return c


def squared_relu(batch, heads, length, head):
    c = Chain(f"squared-relu-{length}")
    q, k, v = c.operands(batch, heads, length, head)
    p = c.g.relu(c.scores(q, k) * head**-0.5)
    c.output(c.causal(p * p * (1 / length)) @ v)
    return c


def retention(batch, heads, length, head, value, is_stored):
    """(q k^T * gamma^(i - j)) v, as in RetNet (Sun et al. 2023); `is_stored`: decays lie in memory."""
    c = Chain(f"retention-{length}{'-stored' if is_stored else ''}")
    q, k, v = c.operands(batch, heads, length, head, value)
    s = c.scores(q, k) * head**-0.5
    if is_stored:
        decay = c.input("decay", 1, heads, length, length)
    else:
        distance = c.as_number(c.g.gen_index(s, -2) - c.g.gen_index(s, -1))
        decay = c.causal(c.g.exp(distance * c.input("log_gamma", 1, heads, 1, 1, type="fp32")))
    c.output((s * decay) @ v)
    return c


def chunks_of_states(batch, chunks, heads, length, state, value):
    """Within the chunks of Mamba-2 (Dao and Gu 2024): one product for all heads, decays of each."""
    c = Chain("mamba2-chunks")
    product = c.scores(c.input("c", batch, chunks, 1, length, state), c.input("b", batch, chunks, 1, length, state))
    sums = c.input("sums", batch, chunks, heads, length, 1, type="fp32")
    difference = sums - c.turned(sums)
    decay = c.g.exp(c.g.binary_select(difference, float("-inf"), c.sees(difference)))
    c.output((product * decay) @ c.input("x", batch, chunks, heads, length, value))
    return c


def linear_chunks(batch, heads, chunks, length, head):
    c = Chain("linear-chunks")
    q, k, v = (c.input(name, batch, heads, chunks, length, head) for name in "qkv")
    c.output(c.causal(c.scores(q, k)) @ v + q @ c.input("state", batch, heads, chunks, head, head))
    return c


def differential(batch, heads, length, head, value):
    """(softmax(q1 k1^T) - x softmax(q2 k2^T)) v (Ye et al. 2024)."""
    c = Chain(f"differential-{length}")

    def softmax(number):
        s = c.scores(c.input(f"q{number}", batch, heads, length, head), c.input(f"k{number}", batch, heads, length, head))
        s = c.g.binary_select(s * head**-0.5, float("-inf"), c.sees(s))
        e = c.g.exp(s - c.g.reduce(s, "max", -1))
        return e / c.g.reduce(e, "add", -1)
    first = softmax(1)
    c.output((first - softmax(2) * 0.3) @ c.input("v", batch, heads, length, value))
    return c


def gradients(kind, batch, heads, length, head):
    c = Chain(f"{kind}-{length}-gradients")
    q, k, v = c.operands(batch, heads, length, head)
    dy, scale = c.input("do", batch, heads, length, head), head**-0.5
    s, dp = c.scores(q, k) * scale, c.scores(dy, v)
    if kind == "sigmoid":
        p = c.g.sigmoid(s - math.log(length))
        ds = dp * p * (1.0 - p) * scale
    else:
        p, ds = c.g.swish(s) * (1 / length), c.g.swish_bwd(dp * (1 / length), s) * scale
    p, ds = (c.g.identity(c.causal(x), type=TYPE) for x in (p, ds))
    c.output(ds @ k, "dq")
    c.output(c.turned(ds) @ q, "dk")
    c.output(c.turned(p) @ dy, "dv")
    return c


def main(folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    chains = [sigmoid(16384 // length, heads, length, head, is_causal)
              for head, heads in ((128, 16), (64, 32)) for length in (2048, 4096, 8192) for is_causal in (False, True)]
    chains += [hstu(16, 8, 2048, 64, False), hstu(16, 8, 2048, 64, True), hstu(8, 4, 4096, 128, False),
               squared_relu(4, 16, 4096, 128), retention(4, 16, 4096, 128, 256, False),
               retention(4, 16, 4096, 128, 128, True), chunks_of_states(8, 16, 24, 256, 128, 64),
               linear_chunks(4, 16, 16, 256, 128), differential(4, 8, 4096, 64, 128),
               gradients("sigmoid", 4, 16, 4096, 128), gradients("hstu", 16, 8, 2048, 64)]
    for chain in chains:
        chain.save(folder)


if __name__ == "__main__":
    main(sys.argv[1])
