"""Owns docs/python-reference.md: classes and functions of the package with their docstrings, made of the stub that the build writes
and of the modules in Python. Fails where the page is stale; --write writes it. Stubs differ between versions of nanobind: the page
names the one that it was made with, and the comparison is left out with another (exit code 77).

usage: python_reference.py STUB ROOT NANOBIND [--write]"""

import ast
import pathlib
import re
import sys

HEAD = """<!-- Owns the reference of the Python package. Generated with nanobind {}: cmake --build build --target fusor_api_reference -->
# Python reference

Classes and functions of `fusor` and `fusor.torch`, made of the package's stub and docstrings. What they are for, with programs:
[Python](python.md). Mistakes raise `fusor.Error`. Where a type, layout, mode or device is expected, its name will do.

"""


def shown(node):
    return re.sub(r"\b(collections\.abc|typing|os)\.", "", ast.unparse(node)) if node else ""


def results(tree):
    """{name: what the page calls it} of the named tuples that ops return, which have no names at run time."""
    found = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and re.fullmatch(r"_\w+Results", node.name):
            fields = [each.target.id for each in node.body if isinstance(each, ast.AnnAssign)]
            more = [", ..."] if len(fields) < len(node.body) else []
            found[node.name] = "".join(["(", ", ".join(fields), *more, ")"])
    return found


tuples = {}


def signature(function):
    arguments = shown(function.args)
    returns = f" -> {shown(function.returns)}" if function.returns else ""
    returns = re.sub(r"_\w+Results", lambda name: tuples.get(name[0], name[0]), returns)
    return f"def {function.name}({arguments}){returns}"


def folded(line, indent, width=120):
    """A long signature, broken behind commas."""
    text, rest = "", indent + line
    while len(rest) > width and ", " in rest[40:width]:
        at = rest.rindex(", ", 40, width) + 1
        text += rest[:at] + "\n"
        rest = indent + "    " + rest[at:].strip()
    return text + rest + "\n"


def documented(function, indent):
    text = folded(signature(function), indent)
    document = ast.get_docstring(function)
    if document:
        lines = "\n".join(f"{indent}    {line}".rstrip() for line in document.split("\n"))
        text += f'{indent}    """{lines.strip()}"""\n'
    return text


def is_property(function):
    return any(shown(each) == "property" for each in function.decorator_list)


def is_setter(function):
    return any(shown(each).endswith(".setter") for each in function.decorator_list)


def is_op(function):
    return "\nFormula: " in (ast.get_docstring(function) or "")


def members(node):
    """(a class' lines of code, the signatures of its ops)."""
    text, ops, values = "", [], []
    for each in node.body:
        if isinstance(each, ast.Assign) and len(each.targets) == 1:
            values.append(each.targets[0].id)
        elif isinstance(each, ast.AnnAssign):
            text += f"    {each.target.id}: {shown(each.annotation)}\n" if not each.target.id.startswith("_") else ""
        elif isinstance(each, ast.FunctionDef) and not each.name.startswith("_") and not is_setter(each):
            if is_op(each):
                ops.append(each)
            elif is_property(each):
                document = (ast.get_docstring(each) or "").replace("\n", " ")
                text += f"    {each.name}" + (f": {shown(each.returns)}" if each.returns else "")
                text += (f"  # {document}" if document else "") + "\n"
            else:
                text += documented(each, "    ")
        elif isinstance(each, ast.FunctionDef) and each.name in ("__init__", "__call__") and not is_setter(each):
            text += documented(each, "    ")
    if values:
        text = f"    {', '.join(values)}\n" + text
    return text, ops


def entity(node):
    if isinstance(node, ast.FunctionDef):
        return node.name, f"```py\n{documented(node, '')}```\n\n"
    text, ops = members(node)
    bases = ", ".join(map(shown, node.bases))
    page = re.sub(r"^([+*-]) ", r"\\\1 ", ast.get_docstring(node) or "", flags=re.MULTILINE) + "\n\n"  # no list
    page += f"```py\nclass {node.name}{f'({bases})' if bases else ''}:\n{text or '    ...' + chr(10)}```\n\n"
    if ops:
        page += "One method for each kind of op: formulas, shapes and types are in the [op reference](op-reference.md) and in the docstrings.\n\n"
        page += "```py\n" + "".join(folded(signature(each), "    ") for each in ops) + "```\n\n"
    return node.name, page


def module(path, names=None):
    """The page of a file's public classes and functions, or of those in `names`."""
    tree = ast.parse(path.read_text())
    tuples.update(results(tree))
    page, before = "", None
    for node in tree.body:
        if not isinstance(node, (ast.FunctionDef, ast.ClassDef)) or node.name.startswith("_"):
            continue
        if names is not None and node.name not in names:
            continue
        name, text = entity(node)
        if name == before and page.endswith("```\n\n"):  # overloads
            page = page.removesuffix("```\n\n") + text.removeprefix("```py\n")
        else:
            page += f"### {name}\n{text}"
        before = name
    return page


def package(folder):
    """The pages of a package whose __init__ says in _LATER which file has which name; the rest is in _op.py."""
    assignments = [node for node in ast.parse((folder / "__init__.py").read_text()).body if isinstance(node, ast.Assign)]
    later = next(ast.literal_eval(node.value) for node in assignments if node.targets[0].id == "_LATER")
    files = dict.fromkeys(later.values())
    pages = [module(folder / f"{file}.py", [name for name in later if later[name] == file]) for file in files]
    return module(folder / "_op.py") + "".join(pages)


def main():
    stub, root, nanobind = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
    path = root / "docs/python-reference.md"
    text = HEAD.format(nanobind) + "## fusor\n\n" + module(stub) + "## fusor.torch\n\n" + package(root / "python/fusor/torch")
    text = re.sub(r"\n{3,}", "\n\n", text).rstrip() + "\n"
    count = text.count("\n### ")
    if "--write" in sys.argv:
        path.write_text(text)
    elif not path.exists() or HEAD.format(nanobind).split("\n")[0] not in path.read_text():
        print(f"left out: {path} was made with another nanobind than {nanobind}")
        return 77
    elif path.read_text() != text:
        print(f"{path} is stale: build the target fusor_api_reference")
        return 1
    print(f"{count} names")
    return 0 if count > 30 else 1


if __name__ == "__main__":
    sys.exit(main())
