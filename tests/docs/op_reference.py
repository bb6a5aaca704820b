"""Owns docs/op-reference.md: every kind of op as `fusor ops` lists it, with the example of tests/docs/op_examples.cpp. Fails where
the page is stale, or where a kind has no text or no example; --write writes it.

usage: op_reference.py FUSOR EXAMPLES SOURCE PAGE [--write]    EXAMPLES: the compiled examples; SOURCE: their text"""

import json
import pathlib
import re
import subprocess
import sys
import textwrap

HEAD = """<!-- Owns the reference of every kind of op. Generated: cmake --build build --target fusor_op_reference -->
# Op reference

Every kind of op: formula, shapes, types, errors, operands, results, attributes with their defaults (as graph files name them and
as the Python builder takes them; C++'s options have the same, where an axis of -1 is the last one, too), and an example in C++, where `g` is a `GraphBuilder`. A test runs every example on the CPU and
compares it with a float64 evaluation; *gives* is what it printed. `fusor ops` prints the same as JSON. Operands in brackets may be
left out; `...` stands for any number. Results that nobody uses are not computed. How types are chosen, and which engine supports
what: [ops](ops.md).

In *types*, *real* stands for: any type is read, and computed in fp32, or in fp64 where an operand is fp64. Every op refuses
extents below 1, an axis out of range, attributes that are NaN or not its own, and a missing operand, with one message that names
the op and the numbers; *errors* lists what else.

"""
COMMON = ("formula", "shapes", "types", "errors")


def role(each):
    name = f"`{each['name']}`" + ("..." if each.get("repeats") else "")
    return f"[{name}]" if each.get("optional") else name


def roles(list_of_roles):
    return ", ".join(map(role, list_of_roles))


def shown(value):
    return value if isinstance(value, str) else json.dumps(value)


def attributes(kind):
    kept = {k: v for k, v in kind["attributes"].items() if k not in ("mode", "compute") or kind["op"] != "pointwise"}
    return ", ".join(f"`{k}` = {shown(v) or 'empty'}" for k, v in kept.items())


def code(formula):
    """A formula between backticks, as a table has it: a bar would end the cell."""
    return f"`{formula}`".replace("|", "\\|")


def example(source, kind):
    found = re.search(rf"^EXAMPLE\({kind}\) {{\n(.*?)^}}", source, re.DOTALL | re.MULTILINE)
    return textwrap.dedent(found[1]).rstrip() if found else None


def block(source, kind, gives):
    results = "; ".join(f"`{each}`" for each in gives[kind])
    return f"```cpp\n{example(source, kind)}\n```\nGives {results}.\n"


def section(kind, source, gives):
    text = f"### {kind['op']}\n{roles(kind['inputs'])} → {roles(kind['outputs'])}\n\n"
    formula = kind["formula"].replace("|", "\\|")
    text += f"| | |\n|---|---|\n| formula | {formula} |\n"
    text += "".join(f"| {key} | {kind[key]} |\n".replace("| |", "|") for key in COMMON[1:])
    if attributes(kind):
        text += f"| attributes | {attributes(kind)} |\n"
    return text + "\n" + block(source, kind["op"], gives) + "\n"


def pointwise_section(kinds, source, gives):
    text = '## Pointwise ops\n`{"op": "pointwise", "mode": ...}`; in the builders each mode is a method. Operands broadcast: trailing axes '
    text += "aligned, equal extents or 1. The formulas are those of `core/pointwise.def`, which the host and every kernel evaluate; "
    text += "factors that only keep infinities from meeting zeros are left out.\n\n" + block(source, "pointwise", gives) + "\n"
    text += "| mode | operands | formula | attributes |\n|---|---|---|---|\n"
    for kind in kinds:
        formula, *meanings = kind["formula"].split("; ")
        cell = "; ".join([code(formula), *map(code, meanings)])
        text += f"| `{kind['attributes']['mode']}` | {roles(kind['inputs'])} | {cell} | {attributes(kind)} |\n"
    text += "\n| modes | types |\n|---|---|\n"
    by_types = {}
    for kind in kinds:
        by_types.setdefault(kind["types"], []).append(f"`{kind['attributes']['mode']}`")
    text += "".join(f"| {' '.join(modes)} | {types} |\n" for types, modes in by_types.items())
    return text + "\nErrors: " + "; ".join(sorted({e for kind in kinds for e in kind["errors"].split("; ")})) + ".\n"


def lacking(kinds, source):
    for kind in kinds:
        name = kind["attributes"]["mode"] if kind["op"] == "pointwise" else kind["op"]
        yield from (f"{name} has no {key}: serialization/op_text.def" for key in COMMON if not kind[key])
        if not example(source, kind["op"]):
            yield f"{kind['op']} has no example: tests/docs/op_examples.cpp"


def main():
    fusor, examples, source, path = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3]).read_text(), pathlib.Path(sys.argv[4])
    kinds = json.loads(subprocess.run([fusor, "ops"], check=True, capture_output=True, text=True).stdout)
    found = list(lacking(kinds, source))
    if found:
        print("\n".join(dict.fromkeys(found)))
        return 1
    gives = json.loads(subprocess.run([examples], check=True, stdout=subprocess.PIPE, text=True).stdout)
    others = [kind for kind in kinds if kind["op"] != "pointwise"]
    text = HEAD + pointwise_section([kind for kind in kinds if kind["op"] == "pointwise"], source, gives)
    text += "\n## Families\n" + "".join(section(kind, source, gives) for kind in others)
    text = text.rstrip() + "\n"
    if "--write" in sys.argv:
        path.write_text(text)
    elif not path.exists() or path.read_text() != text:
        print(f"{path} is stale: build the target fusor_op_reference")
        return 1
    print(f"{len(kinds)} kinds of ops")
    return 0 if len(kinds) > 40 else 1


if __name__ == "__main__":
    sys.exit(main())
