"""Owns the builder's methods that nobody wrote: one for every kind of op that the library lists."""

import json
from collections import namedtuple

from ._fusor import DataType, Layout, Tensor, op_kinds_json

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
    return list(value) if isinstance(value, tuple) else value


_TYPE_NAMES = {
    DataType.f64: "fp64", DataType.f32: "fp32", DataType.f16: "fp16", DataType.bf16: "bf16",
    DataType.f8_e4m3: "fp8_e4m3", DataType.f8_e5m2: "fp8_e5m2", DataType.f8_e8m0: "fp8_e8m0",
    DataType.i64: "int64", DataType.i32: "int32", DataType.i8: "int8", DataType.u8: "uint8", DataType.b8: "bool8",
}  # fmt: skip


class Kind:
    """One kind of op: how a call's arguments become its operands and attributes."""

    def __init__(self, method, kind):
        self.method = method
        self.op = kind["op"]
        self.inputs = kind["inputs"]
        self.outputs = [role["name"] for role in kind["outputs"]]
        self.fixed = {"op": self.op}
        self.defaults = {k: v for k, v in kind["attributes"].items() if k != "compute"}
        if self.op == "pointwise":
            self.fixed["mode"] = self.defaults.pop("mode")
        self.text = {key: kind[key] for key in ("formula", "shapes", "types", "errors")}
        self.results = {}  # named tuples by their fields, made when they are first needed: importing stays cheap
        self.repeats = bool(self.inputs) and self.inputs[-1].get("repeats", False)

    def __call__(self, builder, *args, **named):
        name, type, compute = (named.pop(key, None) for key in _COMMON)
        operands = self._operands(list(args), named)
        given = self._given(named)
        attributes = dict(self.fixed)
        for key in list(named):
            if key not in self.defaults:
                known = ", ".join([*self._names(), *self.defaults, *_COMMON])
                raise TypeError(f"{self.method}() has no argument '{key}'; it has {known}")
            attributes[key] = self._from_front(key, _plain(named.pop(key)), operands)
        results = builder._op(json.dumps(attributes), operands, name or "", type, compute, given)
        return results[0] if len(results) == 1 else self._named(results)

    def _named(self, results):
        """Several results as a tuple whose fields are the roles' names: which there are depends on attributes."""
        fields = tuple(result.name.rpartition(":")[2] for result in results)
        if fields not in self.results:
            name = "".join(word.capitalize() for word in self.method.split("_")) + "Results"
            self.results[fields] = namedtuple(name, fields, rename=True)
        return self.results[fields](*results)

    def _names(self):
        return [role["name"] for role in self.inputs]

    def _operands(self, args, named):
        if self.repeats and len(args) == 1 and isinstance(args[0], (list, tuple)):
            args = list(args[0])
        if len(args) > len(self.inputs) and not self.repeats:
            wanted = ", ".join(self._names())
            raise TypeError(f"{self.method}() has the operands {wanted}; got {len(args)}")
        for role in self.inputs[len(args) :]:
            if role["name"] in named and self._is_operand(role["name"], named):
                args.append(named.pop(role["name"]))
            elif role.get("optional"):
                args.append(None)
            else:
                raise TypeError(f"{self.method}() misses the operand '{role['name']}'")
        while args and args[-1] is None:
            args.pop()
        return args

    def _is_operand(self, name, named):
        """A few operands are attributes as well (epsilon): a tensor is the one, a number the other."""
        return name not in self.defaults or isinstance(named[name], Tensor)

    def _given(self, named):
        dims = {out: named.pop(f"{out}_dims") for out in self.outputs if f"{out}_dims" in named}
        if "dims" in named and "dims" not in self.defaults:
            dims[self.outputs[0]] = named.pop("dims")
        return [dims.get(out, ()) for out in self.outputs] if dims else []

    def _from_front(self, key, value, operands):
        """Negative axes count from the back."""
        rank = next((len(x.dims) for x in operands if isinstance(x, Tensor)), 0)
        if key == "axis" and isinstance(value, int) and value < 0:
            return value + rank
        if key == "axes" and isinstance(value, list):
            return [a + rank if a < 0 else a for a in value]
        return value

    def signature(self):
        """The method's parameters, as a stub has them."""
        parts = ["self"]
        may_end = False  # Python wants a default for everything behind an operand that has one
        for role in self.inputs:
            if role["name"] in self.defaults:  # stands among the attributes
                continue
            may_end = may_end or role.get("optional", False)
            if role.get("repeats"):
                parts.append(f"*{role['name']}: Tensor | float")
            elif role.get("optional"):
                parts.append(f"{role['name']}: Tensor | float | None = None")
            else:
                parts.append(f"{role['name']}: Tensor | float" + (" = ..." if may_end else ""))
        if not self.repeats:
            parts.append("*")
        operands = self._names()
        for key, value in self.defaults.items():
            hint = {bool: "bool", int: "int", float: "float", list: "Sequence[int]"}.get(type(value), "str")
            shown = 'float("inf")' if value == "inf" else "()" if value == [] else repr(value)
            hint = "float" if value == "inf" else f"Tensor | {hint}" if key in operands else hint
            parts.append(f"{key}: {hint} = {shown}")
        parts.append('name: str = "", type: DataType | str | None = None, compute: DataType | str | None = None')
        returns = "Tensor" if len(self.outputs) == 1 else f"tuple[{', '.join(['Tensor'] * len(self.outputs))}]"
        return f"def {self.method}({', '.join(parts)}) -> {returns}"

    def document(self):
        """What it reads and makes, its formula, shapes, types and errors: as docs/op-reference.md has them."""
        reads = ", ".join(r["name"] + (" (optional)" if r.get("optional") else "") for r in self.inputs)
        what = f"{self.method} of {reads} -> {', '.join(self.outputs)}."
        if self.op == "pointwise":
            broadcast = ", which broadcast" if len(self.inputs) > 1 else ""
            what = f"Pointwise {self.method} of {reads}{broadcast}."
        if self.defaults:
            what += f" Attributes: {', '.join(f'{k} ({v})' for k, v in self.defaults.items())}."
        return what + "\n\n" + "\n".join(f"{key.capitalize()}: {text}." for key, text in self.text.items())


def add_methods(builder):
    """Gives the class a method for each kind that it does not have yet."""
    for name, kind in kinds().items():
        if hasattr(builder, name) or name == "reduction":  # reduce() and reduce_to()
            continue
        call = Kind(name, kind)

        def method(self, *args, _call=call, **named):
            return _call(self, *args, **named)

        method.__name__ = name
        method.__qualname__ = f"GraphBuilder.{name}"
        method.__doc__ = call.document()
        setattr(builder, name, method)
        added.append(name)
