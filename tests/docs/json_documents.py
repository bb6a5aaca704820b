"""Compares what every part of the command prints with --json with the schema in docs/command.schema.json: a key that is new,
missing or of another type fails, and so does a property without a description. Knows the part of JSON Schema that the file uses.

usage: json_documents.py FUSOR SCHEMA ROOT"""

import json
import pathlib
import subprocess
import sys
import tempfile

TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": (int, float)}


def faults(value, schema, whole, place):
    if "$ref" in schema:
        yield from faults(value, whole["$defs"][schema["$ref"].rpartition("/")[2]], whole, place)
        return
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if not any(isinstance(value, TYPES[k]) and not (k in ("integer", "number") and value is True) for k in kinds):
        yield f"{place}: expected {schema['type']}, got {value!r:.60}"
    elif isinstance(value, dict):
        known = schema.get("properties", {})
        for key in schema.get("required", []):
            if key not in value:
                yield f"{place}: {key} is missing"
        for key, each in value.items():
            inner = known.get(key, schema.get("additionalProperties"))
            if not inner:
                yield f"{place}: {key} is not in the schema"
            else:
                yield from faults(each, inner, whole, f"{place}.{key}")
    elif isinstance(value, list):
        for i, each in enumerate(value):
            yield from faults(each, schema["items"], whole, f"{place}[{i}]")


def undescribed(schema, place):
    """The properties below a schema that have no description."""
    for key, each in schema.get("properties", {}).items():
        if not each.get("description"):
            yield f"{place}.{key} has no description"
        yield from undescribed(each, f"{place}.{key}")
    for inner in ("items", "additionalProperties"):
        if inner in schema:
            yield from undescribed(schema[inner], place)


def documents(fusor, root, folder):
    """(part, document) of each part that prints one."""
    block, ffn = (str(root / f"samples/graphs/{name}.json") for name in ("resnet50_bottleneck_n1", "llama3_8b_ffn"))
    small = str(root / "tests/tools/graphs/matmul.json")
    plan = str(folder / "p.plan.json")
    quick = ["--device", "cpu", "--runs", "2", "--flush", "1"]
    lines = [
        ("plan", ["plan", small, "--device", "cpu", "-o", plan]), ("plan", ["plan", ffn, "--device", "H200", "--no-compile"]),
        ("run", ["run", plan, "--verify", "--repeat", "3"]), ("run", ["run", small, "--device", "cpu"]),
        ("profile", ["profile", small, *quick]), ("explain", ["explain", block, "--device", "H200"]),
        ("explain", ["explain", ffn, "--device", "A100"]), ("source", ["source", block, "--device", "H200", "--generated"]),
        ("source", ["source", small, "--device", "H200", "-o", str(folder / "kernels")]),
        ("candidates", ["candidates", ffn, "--device", "H200"]), ("tune", ["tune", small, *quick]),
        ("bench", ["bench", small, *quick]), ("engines", ["engines"]), ("ops", ["ops"]),
        ("fuzz", ["fuzz", "--device", "cpu", "--runs", "3"]), ("doctor", ["doctor"]), ("devices", ["devices"]),
        ("error", ["run", "/no/such.json"]), ("error", ["dance"]),
    ]  # fmt: skip
    for part, words in lines:
        environment = {"FUSOR_CACHE_DIR": str(folder / "cache"), "PATH": "/usr/bin:/bin"}
        done = subprocess.run([fusor, *words, "--json"], capture_output=True, text=True, env=environment)
        assert done.returncode in ((2,) if part == "error" else (0, 3) if part == "doctor" else (0,)), (words, done.stderr)
        yield part, json.loads(done.stdout)


def main():
    fusor, schema, root = sys.argv[1], json.loads(pathlib.Path(sys.argv[2]).read_text()), pathlib.Path(sys.argv[3])
    count = 0
    found = [fault for name, each in schema["$defs"].items() for fault in undescribed(each, name)]
    with tempfile.TemporaryDirectory() as folder:
        for part, document in documents(fusor, root, pathlib.Path(folder)):
            found += faults(document, schema["$defs"][part], schema, part)
            count += 1
    print("\n".join(found) or f"{count} documents are as the schema says")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
