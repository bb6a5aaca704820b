"""Owns the builder's methods that nobody wrote: one for every kind of op that the library lists."""

import json
import math
from collections import namedtuple

from ._fusor import DataType, Error, Layout, Tensor, _results, _roles, op_kinds_json

added = []  # names of the methods that add_methods() made
_COMMON = ("name", "type", "compute")


def kinds():
    """Every kind of op as data, by the name of its method."""
    table = {}
    for kind in json.loads(op_kinds_json()):
        mode = kind["attributes"].get("mode") if kind["op"] == "pointwise" else None
        table[mode or kind["op"]] = kind
    return table


def _plain(value):
    """An attribute as graph files have it."""
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return "inf" if value > 0 else "-inf"
    if isinstance(value, (DataType, Layout)) or hasattr(value, "name"):
        return _TYPE_NAMES.get(value, getattr(value, "name", value))
    if hasattr(value, "tolist"):  # numbers and arrays of NumPy's
        return value.tolist()
    return [_plain(each) for each in value] if isinstance(value, (list, tuple)) else value


def _is_integer(value):
    """Whether value is one integer, NumPy's too, and no array."""
    return hasattr(value, "__index__") and not getattr(value, "shape", ())


_TYPE_NAMES = {
    DataType.f64: "fp64", DataType.f32: "fp32", DataType.f16: "fp16", DataType.bf16: "bf16",
    DataType.f8_e4m3: "fp8_e4m3", DataType.f8_e5m2: "fp8_e5m2", DataType.f8_e8m0: "fp8_e8m0",
    DataType.i64: "int64", DataType.i32: "int32", DataType.i8: "int8", DataType.u8: "uint8", DataType.b8: "bool8",
    DataType.f4_e2m1: "fp4_e2m1", DataType.i4: "int4", DataType.b1: "bool1",
}  # fmt: skip


# Names of C++ that graph files have others for.
_SPELLED = {
    "norm_fwd": {"axes": "normalized_axes", "epsilon_scalar": "epsilon", "momentum_scalar": "momentum"},
    "norm_bwd": {"axes": "normalized_axes", "epsilon_scalar": "epsilon"},
    "bn_finalize": {"epsilon_scalar": "epsilon", "momentum_scalar": "momentum"},
    "resample_bwd": {"x_dims": "dx_dims"},
    "sdpa_bwd": {"d_o": "do"},
}
# Parameters that stand behind the operands in C++.
_BEHIND = {
    "gen_index": ("axis",), "scatter": ("dims",), "dropout": ("probability",), "ragged_load": ("dims", "strides"),
    "ragged_store": ("elements", "strides"),
}  # fmt: skip
# Other arguments that are no attributes: dims of results, and what stands for several attributes or operands.
_MORE = {
    "scatter": {"dims": "Sequence[int]"}, "ragged_load": {"dims": "Sequence[int]"},
    "ragged_store": {"elements": "int"}, "rng_uniform": {"dims": "Sequence[int]"},
    "rng_normal": {"dims": "Sequence[int]"}, "rng_bernoulli": {"dims": "Sequence[int]"},
    "resample_fwd": {"padding": "int | Sequence[int]"},
    "resample_bwd": {"x_dims": "Sequence[int]", "padding": "int | Sequence[int]"},
    "rnn_fwd": {"weights": "Sequence[Tensor]"}, "rnn_bwd": {"weights": "Sequence[Tensor]"},
}  # fmt: skip
# Of these, what stands right behind the operands that are required, as in C++.
_EARLY = {"resample_bwd": "x_dims", "rnn_fwd": "weights", "rnn_bwd": "weights"}
_SPATIAL = ("window", "stride", "pre_padding", "post_padding", "output_size", "step", "shift", "denominator")
# Families whose operands depend on their attributes.
_BY_ATTRIBUTES = ("norm_fwd", "norm_bwd", "resample_bwd", "rnn_fwd", "rnn_bwd", "recurrence")
# Attributes that say which results there are: the values with which they are those of the default, and others.
_RESULTS_BY = {
    "resample_fwd": (
        "mode", ("maxpool",), ("avgpool_include_padding", "avgpool_exclude_padding", "bilinear", "nearest"),
    ),
    "norm_fwd": (
        "norm", ("layer_norm", "batch_norm", "instance_norm", "group_norm", "adaptive_layer_norm"), ("rms_norm",),
    ),
    "rnn_fwd": ("cell", ("lstm",), ("gru", "rnn_relu", "rnn_tanh")),
}  # fmt: skip


class Way:
    """One way to call a method, as a stub has it."""

    def __init__(self, returns, early=None, fixed=None, roles=None):
        self.returns = returns  # the results there may be: lists of their names
        self.early = early  # the argument that stands right behind the operands that are required
        self.fixed = fixed or {}  # attributes that have one of these values
        self.roles = roles  # where they are not those of the default attributes


class Kind:
    """One kind of op: how a call's arguments become its operands and attributes."""

    def __init__(self, method, kind):
        self.method = method
        self.op = kind["op"]
        self.roles = [(role["name"], role.get("optional", False)) for role in kind["inputs"]]
        self.outputs = [role["name"] for role in kind["outputs"]]
        self.fixed = {"op": self.op}
        self.defaults = {k: v for k, v in kind["attributes"].items() if k != "compute"}
        if self.op == "pointwise":
            self.fixed["mode"] = self.defaults.pop("mode")
        self.text = {key: kind[key] for key in ("formula", "shapes", "types", "errors")}
        self.results = {}  # named tuples by their fields, made when they are first needed: importing stays cheap
        self.repeats = bool(kind["inputs"]) and kind["inputs"][-1].get("repeats", False)
        self.spelled = _SPELLED.get(method, {})
        self.more = _MORE.get(method, {})

    def __call__(self, builder, *args, **named):
        name, type, compute = (named.pop(key, None) for key in _COMMON)
        args = self._in_files_words(list(args), named)
        attributes = dict(self.fixed)
        for key in list(named):
            if key in self.defaults and not isinstance(named[key], Tensor):
                attributes[key] = self._number(key, _plain(named.pop(key)))
        roles = self.roles
        if self.op in _BY_ATTRIBUTES:
            attributes = self._filled(attributes, args, named)
            roles = _roles(json.dumps(attributes))
            if "weights" not in self.more:
                args = self._by_name(args, named, roles)
        weights = named.pop("weights", ()) if "weights" in self.more else ()
        operands = self._operands(roles, args, named, weights)
        given = self._given(named)
        for key, value in named.items():
            if value is not None or key not in self.arguments():
                raise self._unknown(key, roles)
        results = builder._op(json.dumps(attributes), operands, name or "", type, compute, given)
        return results[0] if len(results) == 1 else self._named(results)

    def _number(self, key, value):
        if isinstance(value, float) and math.isnan(value):
            raise Error(f"{self.method}: {key} is not a number")
        return value

    def _in_files_words(self, args, named):
        """Arguments under the names and in the order of C++, as graph files have them."""
        behind = _BEHIND.get(self.method, ())
        if 0 < len(args) - len(self.roles) <= len(behind):
            for key, value in zip(behind, args[len(self.roles) :]):
                self._put(named, key, value)
            args = args[: len(self.roles)]
        if self.op == "resample_bwd" and len(args) > 1 and not isinstance(args[1], Tensor):
            self._put(named, "dx_dims", args.pop(1))
        if self.op in ("rnn_fwd", "rnn_bwd") and args and isinstance(args[-1], (list, tuple)):
            self._put(named, "weights", args.pop())
        for said, written in self.spelled.items():
            if said in named:
                self._put(named, written, named.pop(said))
        if "elements" in self.more and "elements" in named:
            self._put(named, "dims", [named.pop("elements")])
        if "padding" in self.more and "padding" in named:
            padding = named.pop("padding")
            self._put(named, "pre_padding", padding)
            self._put(named, "post_padding", padding)
        for key, value in named.items():
            if isinstance(self.defaults.get(key), list) and _is_integer(value):
                first = named.get(self.roles[0][0]) if self.roles else None
                dims = next((x.dims for x in [*args, first] if isinstance(x, Tensor)), ())
                named[key] = [int(value)] * (max(len(dims) - 2, 1) if key in _SPATIAL else 1)
        return args

    def _put(self, named, key, value):
        if key in named:
            raise TypeError(f"{self.method}() is given '{key}' twice")
        named[key] = value

    def _filled(self, attributes, args, named):
        """The hidden size of a recurrent layer is what its weights say, where nobody says it."""
        if "cell" not in self.defaults or "hidden_size" in attributes:
            return attributes
        weights = named.get("weights") or [w for w in (named.get("weight_ih_l0"),) if w is not None]
        if not isinstance(weights, (list, tuple)) or not all(isinstance(w, Tensor) for w in weights):
            raise TypeError(f"{self.method}() wants a list of tensors as weights")
        if not weights:
            return attributes
        gates = {"lstm": 4, "gru": 3}.get(attributes.get("cell", self.defaults["cell"]), 1)
        return {**attributes, "hidden_size": weights[0].dims[0] // gates}

    def _named(self, results):
        """Several results as a tuple whose fields are the roles' names: which there are depends on attributes."""
        fields = tuple(result.name.rpartition(":")[2] for result in results)
        if fields not in self.results:
            name = "".join(word.capitalize() for word in self.method.split("_")) + "Results"
            self.results[fields] = namedtuple(name, fields, rename=True)
        return self.results[fields](*results)

    def _by_name(self, args, named, roles):
        """Operands have the places of the signature; which of them there are, the attributes say."""
        there = [name for name, _ in roles]
        all_roles = [name for name, _ in self.roles]
        places = there if self.op == "recurrence" else [name for name in all_roles if name not in self.defaults]
        if len(args) > len(places):
            raise TypeError(f"{self.method}() takes {', '.join(places)} by position; got {len(args)}")
        for name, value in zip(places, args):
            if value is not None and name in named:
                raise TypeError(f"{self.method}() is given '{name}' by position and by name")
            if value is not None:
                named[name] = value
        for name in all_roles:
            if name in named and named[name] is None and name not in self.defaults:
                del named[name]
            elif name in named and name not in there:
                raise self._unknown(name, roles)
        return []

    def _operands(self, roles, args, named, weights):
        if self.repeats and len(args) == 1 and isinstance(args[0], (list, tuple)):
            args = list(args[0])
        if len(args) > len(roles) and not self.repeats:
            wanted = ", ".join([name for name, _ in roles] + list(_BEHIND.get(self.method, ())))
            raise TypeError(f"{self.method}() takes {wanted} by position; got {len(args)}")
        names = [name for name, _ in roles]
        # Without layers there are no weights: C++ says what is wrong with the attributes.
        first = names.index("weight_ih_l0") if "weight_ih_l0" in names else None
        listed = {} if first is None else dict(zip(names[first:], weights))
        if first is not None and len(listed) < len(weights):
            raise TypeError(f"{self.method}() has {len(listed)} weights with these attributes; got {len(weights)}")
        for name, optional in roles[len(args) :]:
            if name in listed:
                args.append(listed[name])
            elif name in named:
                args.append(named.pop(name))
            elif optional:
                args.append(None)
            else:
                raise TypeError(f"{self.method}() misses the operand '{name}'")
        while args and args[-1] is None:
            args.pop()
        return args

    def _given(self, named):
        dims = {out: named.pop(f"{out}_dims") for out in self.outputs if f"{out}_dims" in named}
        if "dims" in named and "dims" not in self.defaults:
            dims[self.outputs[0]] = named.pop("dims")
        return [dims.get(out, ()) for out in self.outputs] if dims else []

    def arguments(self):
        """The names of every argument, those of C++ where graph files have others."""
        said = {written: key for key, written in self.spelled.items() if key != f"{written}_scalar"}
        names = [*(name for name, _ in self.roles), *self.spelled, *self.defaults, *self.more, *_COMMON]
        return list(dict.fromkeys(said.get(name, name) for name in names))

    def _unknown(self, key, roles):
        from difflib import get_close_matches

        known = self.arguments()
        if key in [name for name, _ in roles]:
            return TypeError(f"{self.method}() is given '{key}' by position and by name")
        if key in known:
            return TypeError(f"{self.method}() has no operand '{key}' with these attributes; its operands are "
                             f"{', '.join(name for name, _ in roles)}")  # fmt: skip
        close = get_close_matches(key, known, 1)
        hint = f"did you mean '{close[0]}'? " if close else ""
        return TypeError(f"{self.method}() has no argument '{key}'; {hint}it has {', '.join(known)}")

    def ways(self):
        """The ways to call the method: arguments in another order, other operands, other results."""
        if self.op == "recurrence":
            return [self._of_recurrence(False), self._of_recurrence(True)]
        early = [_EARLY[self.method], None] if self.method in _EARLY else [None]
        if self.method not in _RESULTS_BY:
            return [Way([self.outputs], each) for each in early]
        attribute, usual, others = _RESULTS_BY[self.method]
        fewer = _results(json.dumps({**self.fixed, attribute: others[0]}))
        returns = [([self.outputs], {attribute: usual}), ([fewer], {attribute: others}), ([self.outputs, fewer], {})]
        return [Way(results, each, fixed) for each in early for results, fixed in returns]

    def _of_recurrence(self, backward):
        there = {key: True for key in self.defaults if key.startswith("has_")}
        roles = _roles(json.dumps({**self.fixed, **there, "backward": backward}))
        required = 3 if backward else 2
        return Way([self.outputs], fixed={"backward": (backward,)},
                   roles=[(name, place >= required) for place, (name, _) in enumerate(roles)])  # fmt: skip

    def signatures(self):
        """The method's parameters, as a stub has them: one for each way to call it."""
        return [self.signature(way) for way in self.ways()]

    def result_tuples(self):
        """{name of a named tuple in stubs: its fields} of what the method returns."""
        return {self._tuple_name(names): names for way in self.ways() for names in way.returns if len(names) > 1}

    def _tuple_name(self, names):
        name = "".join(word.capitalize() for word in self.method.split("_"))
        return f"_{name}{'' if names == self.outputs else 'Fewer'}Results"

    def signature(self, way):
        """One of them."""
        early = way.early
        parts = ["self"]
        said = {written: key for key, written in self.spelled.items() if key != f"{written}_scalar"}
        tensor = "Tensor | float" if self.op == "pointwise" else "Tensor"  # numbers become constants
        may_end = False  # Python wants a default for everything behind an operand that has one
        roles = way.roles or self.roles
        for name, optional in roles:
            if name in self.defaults:  # stands among the attributes
                continue
            name = said.get(name, name)
            if early and optional and not may_end:
                parts += [f"{early}: {self.more[early]}", "*"]
            if way.roles and optional and not may_end:  # which operands there are, attributes say
                parts.append("*")
            may_end = may_end or optional
            if self.repeats and name == roles[-1][0]:
                parts.append(f"*{name}: {tensor}")
            elif optional:
                parts.append(f"{name}: {tensor} | None = None")
            elif not (early == "weights" and may_end):  # else it is one of the list
                parts.append(f"{name}: {tensor}" + (" = ..." if may_end else ""))
        operands = [name for name, _ in roles]
        required = ("dims", "elements")
        more = {key: f"{key}: {hint}{'' if key in required else ' = ...'}" for key, hint in self.more.items()}
        more.pop(early, None)
        for key in self.spelled:
            if key.endswith("_scalar"):
                more[key] = f"{key}: Tensor | None = None"
        for key, value in self.defaults.items():
            hint = {bool: "bool", int: "int", float: "float", list: "int | Sequence[int]"}.get(type(value), "str")
            shown = 'float("inf")' if value == "inf" else "()" if value == [] else repr(value)
            hint = "float" if value == "inf" else f"Tensor | {hint}" if key in operands else hint
            if key in way.fixed:
                hint = f"Literal[{', '.join(map(repr, way.fixed[key]))}]"
            is_said = key in way.fixed and value not in way.fixed[key]
            more[key] = f"{said.get(key, key)}: {hint}" + ("" if is_said else f" = {shown}")
        parts += [more.pop(key) for key in _BEHIND.get(self.method, ())]
        if not self.repeats and not early and not way.roles:
            parts.append("*")
        parts += more.values()
        parts.append('name: str = "", type: DataType | str | None = None, compute: DataType | str | None = None')
        returns = " | ".join("Tensor" if len(each) == 1 else self._tuple_name(each) for each in way.returns)
        return f"def {self.method}({', '.join(parts)}) -> {returns}"

    def document(self):
        """What it reads and makes, its formula, shapes, types and errors: as docs/op-reference.md has them."""
        reads = ", ".join(name + (" (optional)" if optional else "") for name, optional in self.roles)
        what = f"{self.method} of {reads} -> {', '.join(self.outputs)}."
        if self.op == "pointwise":
            broadcast = ", which broadcast" if len(self.roles) > 1 else ""
            what = f"Pointwise {self.method} of {reads}{broadcast}."
        if self.defaults:
            what += f" Attributes: {', '.join(f'{k} ({v})' for k, v in self.defaults.items())}."
        return what + "\n\n" + "\n".join(f"{key.capitalize()}: {text}." for key, text in self.text.items())


class Rng:
    """C++ has one rng() for the three kinds rng_uniform, rng_normal and rng_bernoulli."""

    method = "rng"

    def __call__(self, builder, dims, seed, offset, *, distribution="uniform", **named):
        kinds = [name for name in added if name.startswith("rng_")]
        if f"rng_{distribution}" not in kinds:
            known = ", ".join(name[len("rng_") :] for name in kinds)
            raise TypeError(f"rng(): unknown distribution {distribution!r}; known: {known}")
        return getattr(builder, f"rng_{distribution}")(seed, offset, dims=dims, **named)

    def signatures(self):
        return [self.signature()]

    def result_tuples(self):
        return {}

    def signature(self):
        return (
            "def rng(self, dims: int | Sequence[int], seed: Tensor, offset: Tensor, *, "
            'distribution: str = "uniform", probability: float = 0.5, low: float = 0.0, high: float = 1.0, '
            'mean: float = 0.0, deviation: float = 1.0, name: str = "", type: DataType | str | None = None, '
            "compute: DataType | str | None = None) -> Tensor"
        )

    def document(self):
        return (
            "Random numbers of `dims`: rng_uniform(low, high), rng_normal(mean, deviation) or "
            "rng_bernoulli(probability), by the distribution's name."
        )


def methods():
    """Every method that add_methods() makes, by its name."""
    made = {name: Kind(name, kind) for name, kind in kinds().items()}
    made.pop("reduction")  # reduce() and reduce_to()
    return {**made, "rng": Rng()}


def add_methods(builder):
    """Gives the class a method for each kind that it does not have yet."""
    for name, call in methods().items():
        if hasattr(builder, name):
            continue

        def method(self, *args, _call=call, **named):
            return _call(self, *args, **named)

        method.__name__ = name
        method.__qualname__ = f"GraphBuilder.{name}"
        method.__doc__ = call.document()
        setattr(builder, name, method)
        added.append(name)
