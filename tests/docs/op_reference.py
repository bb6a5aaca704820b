"""Owns docs/op-reference.md: every kind of op as `fusor ops` lists it. Fails where the page is stale; --write writes it.

usage: op_reference.py FUSOR PAGE [--write]"""

import json
import pathlib
import subprocess
import sys

HEAD = """<!-- Owns the list of every kind of op. Generated: cmake --build build --target fusor_op_reference -->
# Op reference

Every kind of op with its operands, results, and the attributes with their defaults, as graph files name them and as the
Python builder takes them; `fusor ops` prints the same as JSON. Operands in brackets may be left out; `...` stands for any
number. What the ops compute, their types and shapes: [ops](ops.md).

"""


def role(each):
    name = each["name"] + ("..." if each.get("repeats") else "")
    return f"[{name}]" if each.get("optional") else name


def shown(value):
    return value if isinstance(value, str) else json.dumps(value)


def line(name, kind):
    attributes = {k: v for k, v in kind["attributes"].items() if k not in ("mode", "compute") or kind["op"] != "pointwise"}
    words = ", ".join(f"{k} = {shown(v) or 'empty'}" for k, v in attributes.items())
    inputs, outputs = (", ".join(map(role, kind[side])) for side in ("inputs", "outputs"))
    return f"| `{name}` | {inputs} | {outputs} | {words} |\n"


def page(kinds):
    table = "| op | operands | results | attributes |\n|---|---|---|---|\n"
    pointwise = [kind for kind in kinds if kind["op"] == "pointwise"]
    others = [kind for kind in kinds if kind["op"] != "pointwise"]
    text = HEAD + "## Families\n" + table + "".join(line(kind["op"], kind) for kind in others)
    text += '\n## Pointwise modes\n`{"op": "pointwise", "mode": ...}`; in the builders each mode is a method.\n\n' + table
    return text + "".join(line(kind["attributes"]["mode"], kind) for kind in pointwise)


def main():
    fusor, path = sys.argv[1], pathlib.Path(sys.argv[2])
    kinds = json.loads(subprocess.run([fusor, "ops"], check=True, capture_output=True, text=True).stdout)
    text = page(kinds)
    if "--write" in sys.argv:
        path.write_text(text)
    elif not path.exists() or path.read_text() != text:
        print(f"{path} is stale: build the target fusor_op_reference")
        return 1
    print(f"{len(kinds)} kinds of ops")
    return 0 if len(kinds) > 40 else 1


if __name__ == "__main__":
    sys.exit(main())
