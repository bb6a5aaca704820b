"""Owns docs/cudnn-reference.md: the descriptors and calls of the library with cuDNN's interface. Fails where the page is stale,
or where an op of the table has no rule of translation; --write writes it.

usage: cudnn_reference.py COVERAGE ROOT [--write]"""

import itertools
import json
import pathlib
import re
import subprocess
import sys

HEAD = """<!-- Owns the list of what libcudnn.so.9 knows. Generated: cmake --build build --target fusor_cudnn_reference -->
# What the library with cuDNN's interface knows

Made of the table that checks every call, and of the list of names that are not carried out; how to use the library, and what
differs: [programs written for cuDNN](cudnn.md). Attributes in brackets may be left out. What is not listed answers
`CUDNN_STATUS_NOT_SUPPORTED`.

"""
HEADERS = {"cudnn_graph.h": "Graphs, handles", "cudnn_ops.h": "Tensors and small layers", "cudnn_cnn.h": "Convolutions",
           "cudnn_adv.h": "Recurrent layers, CTC loss"}


def own_name(row):
    return row["name"].removeprefix("CUDNN_BACKEND_").removesuffix("_DESCRIPTOR").removeprefix("OPERATION_")


def prefix(row):
    """What the names of all attributes begin with."""
    names = [each["name"].split("_") for each in row["attributes"]]
    if len(names) == 1:
        return "CUDNN_ATTR_OPERATION_" if row["operation"] else "CUDNN_ATTR_"
    common = itertools.takewhile(lambda words: len(set(words)) == 1, zip(*names))
    return "_".join(words[0] for words in common) + "_"


def attributes(row, wanted):
    names = []
    for each in filter(wanted, row["attributes"]):
        name = each["name"].removeprefix(prefix(row))
        name = name.removesuffix("DESC").rstrip("_") or name
        names.append(f"[{name}]" if each["need"] == "optional" else name)
    return ", ".join(names)


def op_line(row):
    parts = [attributes(row, lambda each, flow=flow: each["flow"] == flow) for flow in ("reads", "writes", "none")]
    return f"| `{own_name(row)}` | " + " | ".join(parts) + " |\n"


def part_line(row):
    parts = [attributes(row, lambda each: each["need"] != "answer"), attributes(row, lambda each: each["need"] == "answer")]
    return f"| `{own_name(row)}` | " + " | ".join(parts) + " |\n"


def calls(root):
    refused = re.findall(r"FUSOR_UNSUPPORTED\((\w+)\)", (root / "compat/cudnn/src/unsupported.def").read_text())
    carried = {}
    for header in HEADERS:
        text = (root / "compat/cudnn/include" / header).read_text()
        names = re.findall(r"CUDNNWINAPI\s+(\w+)\(", text)
        carried[header] = [name for name in names if name not in refused]
    return carried, refused


def page(rows, carried, refused):
    text = HEAD + "## Ops of a graph\n| op | reads | writes | other attributes |\n|---|---|---|---|\n"
    text += "".join(op_line(row) for row in rows if row["operation"])
    text += "\n## Other descriptors\n| descriptor | set by the client | told by the library |\n|---|---|---|\n"
    text += "".join(part_line(row) for row in rows if not row["operation"])
    text += "\n## Calls that are carried out\n| | |\n|---|---|\n"
    for header, title in HEADERS.items():
        text += f"| {title} | " + ", ".join(f"`{name}`" for name in carried[header]) + " |\n"
    return text + "\n## Calls that are not\n" + ", ".join(f"`{name}`" for name in refused) + ".\n"


def main():
    coverage, root = sys.argv[1], pathlib.Path(sys.argv[2])
    path = root / "docs/cudnn-reference.md"
    rows = json.loads(subprocess.run([coverage], check=True, capture_output=True, text=True).stdout)
    rules = re.findall(r"\{(CUDNN_BACKEND_OPERATION_\w+), translate_\w+\}",
                       (root / "compat/cudnn/src/translate/translate.cpp").read_text())
    without = [row["name"] for row in rows if row["operation"] and not any(row["name"] in rule for rule in rules)]
    text = page(rows, *calls(root))
    if without:
        print("ops without a rule of translation:", ", ".join(without))
        return 1
    if "--write" in sys.argv:
        path.write_text(text)
    elif not path.exists() or path.read_text() != text:
        print(f"{path} is stale: build the target fusor_cudnn_reference")
        return 1
    print(f"{len(rows)} descriptors")
    return 0 if len(rows) > 30 else 1


if __name__ == "__main__":
    sys.exit(main())
