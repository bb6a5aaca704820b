"""Tests that the builder's names are those of C++: every method and option of the headers is one in Python."""

import inspect
import pathlib
import re
import unittest

import fusor
from fusor import _ops

ROOT = pathlib.Path(__file__).resolve().parents[2]
OPTIONS = (ROOT / "frontend" / "composite_options.h").read_text()
BUILDER = (ROOT / "frontend" / "graph_builder.h").read_text()
# Options of a struct that another of its ops reads.
ELSEWHERE = {
    "rnn_fwd": {"dhn", "dcn"},
    "sdpa_bwd": {"page_table_k", "page_table_v", "scale"},
    "block_scale_dequantize": {"y_type", "scale_type"},
    "gen_index": {"lower_clip", "upper_clip", "lower_clip_slope", "elu_alpha", "softplus_beta", "swish_beta"},
}


def fields_of(struct):
    """Names of a struct's members."""
    body = re.search(rf"struct {struct} {{\n(.*?)^}};", OPTIONS + BUILDER, re.DOTALL | re.MULTILINE)
    fields = []
    for line in body[1].splitlines():
        for name in re.findall(r"(\w+)(?: = [^;,]+)?(?=[,;])", re.sub(r"//.*", "", line)):
            fields.append(name)
    return fields


def methods():
    """(name, names of the parameters, struct of options) of every method that makes tensors."""
    public = BUILDER[BUILDER.index("Tensor input(") : BUILDER.index("/// An op of any family")]
    public = re.sub(r"//.*", "", public)
    method = r"^  (?:Tensor|\w+Results|\w+Gradients) (\w+)\(([^{}]*?(?:\{\}[^{}]*?)*)\)\s*;"
    for match in re.finditer(method, public, re.MULTILINE):
        names, struct = [], None
        for parameter in re.split(r",(?![^<]*>)", match[2]):
            words = re.sub(r"=.*", "", parameter).split()
            if "Options" in parameter:
                struct = re.search(r"(\w+Options)", parameter)[1]
            else:
                names.append(words[-1].lstrip("&*"))
        yield match[1], names, struct


def accepted(method):
    """The names of a method's arguments in Python."""
    made = _ops.methods().get(method)
    if method in _ops.added and method != "rng":
        return set(made.arguments())
    if method == "rng":
        return set(re.findall(r"(\w+):", made.signature()))
    return set(re.findall(r"(\w+): ", getattr(fusor.GraphBuilder, method).__doc__.splitlines()[0]))


class Names(unittest.TestCase):
    def test_every_method_has_the_parameters_and_options_of_cpp(self):
        found = list(methods())
        for name, parameters, struct in found:
            if name == "pointwise":  # each mode is a method
                continue
            wanted = set(parameters)
            for field in fields_of(struct) if struct else []:
                if field == "attributes":
                    wanted |= {"attn_scale", "right_bound", "dropout_probability"}
                elif field not in ("name", "type", "compute"):
                    wanted.add(field)
            wanted -= ELSEWHERE.get(name, set())
            with self.subTest(method=name):
                self.assertLessEqual(wanted, accepted(name))
        names = {name for name, _, _ in found}
        for expected in ("softmax", "norm_fwd", "rng", "dropout", "resample_bwd", "conv_wgrad", "ragged_store", "sdpa_bwd"):
            self.assertIn(expected, names)
        self.assertGreater(len(found), 40)


class Stub(unittest.TestCase):
    """What the stub says of a method, as a type checker reads it."""

    def ways(self, method):
        """The signatures of a method, as functions."""
        found = []
        for text in _ops.methods()[method].signatures():
            scope = {}
            exec(f"from __future__ import annotations\n{text}: ...", scope)
            found.append(inspect.signature(scope[method]))
        return found

    def takes(self, method, *args, **named):
        for way in self.ways(method):
            try:
                bound = way.bind(None, *args, **named)
            except TypeError:
                continue
            hints = {name: way.parameters[name].annotation for name in bound.arguments}
            if all(self.fits(value, hints[name]) for name, value in bound.arguments.items() if name != "self"):
                return True
        return False

    def fits(self, value, hint):
        return {list: "Sequence", str: "Tensor", float: "float"}[type(value)] in hint

    def test_the_ways_to_call_are_in_the_stub(self):
        for method, args, named in (
            ("resample_bwd", ("dy", [2, 3, 16, 16]), {}),
            ("resample_bwd", ("dy",), {"x_dims": [2, 3, 16, 16]}),
            ("resample_bwd", ("dy", "x", "index"), {}),
            ("rnn_fwd", ("x", ["w", "w"]), {"h0": "h0"}),
            ("rnn_fwd", ("x", "h0", "c0"), {"weights": ["w"]}),
            ("rnn_bwd", ("dy", "x", ["w"]), {}),
            ("rng", ([3], "seed", "offset"), {}),
            ("scatter", ("x", "index", [3]), {}),
            ("mul", ("x", 2.0), {}),
        ):
            with self.subTest(method=method, args=args):
                self.assertTrue(self.takes(method, *args, **named))

    def test_results_are_those_of_the_attributes(self):
        def named(result):
            return ["y"] if isinstance(result, fusor.Tensor) else list(result._fields)

        for method, dims, options in (
            ("resample_fwd", (1, 1, 4), {"window": 2}),
            ("resample_fwd", (1, 1, 4), {"mode": "avgpool_include_padding", "window": 2}),
            ("resample_fwd", (1, 1, 4), {"mode": "nearest", "output_size": 3}),
            ("norm_fwd", (2, 4, 3), {}),
            ("norm_fwd", (2, 4, 3), {"norm": "group_norm"}),
            ("norm_fwd", (2, 4, 3), {"norm": "rms_norm"}),
            ("rnn_fwd", (2, 1, 4), {"cell": "lstm", "bias": False}),
            ("rnn_fwd", (2, 1, 4), {"cell": "gru", "bias": False}),
        ):
            with self.subTest(method=method, options=options):
                g = fusor.GraphBuilder("g")
                x = g.input("x", dims)
                gates = {"lstm": 4, "gru": 3}.get(options.get("cell"), 1)
                more = [[g.input(name, (gates * 4, 4)) for name in "ih"]] if method == "rnn_fwd" else []
                fields = named(getattr(g, method)(x, *more, **options))
                ways = [way for way in _ops.methods()[method].ways() if way.fixed and all(
                    options.get(key, values[0]) in values for key, values in way.fixed.items())]  # fmt: skip
                self.assertEqual(ways[0].returns, [fields])

    def test_recurrences_have_the_operands_of_their_direction(self):
        for backward, operands in ((False, ["given", "weights", "h0"]), (True, ["dy", "states", "weights", "dhn"])):
            kind = _ops.methods()["recurrence"]
            way = next(way for way in kind.ways() if way.fixed["backward"] == (backward,))
            self.assertLessEqual(set(operands), {name for name, _ in way.roles})
        g = fusor.GraphBuilder("g")
        dy, states = g.input("dy", (2, 1, 4)), g.input("states", (2, 3, 1, 4))
        dgiven = g.recurrence(dy, states, g.input("w", (4, 4)), cell="rnn_tanh", hidden_size=4, backward=True)
        self.assertEqual(dgiven.dims, (3, 1, 4))

    def test_what_is_refused_is_not_in_the_stub(self):
        for method, args, named in (
            ("rng", ([3], 1.0, 2.0), {}),
            ("rng_uniform", ("seed", "offset"), {}),
            ("scatter", ("x", "index"), {}),
            ("rnn_fwd", ("x", 1.0), {}),
            ("softmax", (1.0,), {}),
            ("dropout", ("x", 1.0, 2.0), {}),
        ):
            with self.subTest(method=method, args=args):
                self.assertFalse(self.takes(method, *args, **named))


if __name__ == "__main__":
    unittest.main()
