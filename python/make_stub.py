"""Writes the type stub of the extension: what nanobind knows of it, and the methods that follow from the table of ops.

usage: make_stub.py FOLDER_OF_THE_PACKAGE OUTPUT"""

import pathlib
import sys
import textwrap

ERROR = '''class Error(RuntimeError):
    """
    The one exception of fusor. Its message names the op, tensor or file and the numbers.
    """

    kind: ErrorKind
'''


def result_tuple(name, fields):
    """The class of a named tuple. That of recurrent gradients has a field for each weight of each layer, besides."""
    if name == "_RnnBwdResults":
        fields = [field for field in fields if "_l0" not in field]
        text = f"class {name}(tuple[Tensor, ...]):\n" + "".join(f"    {field}: Tensor\n" for field in fields)
        return text + "    def __getattr__(self, name: str) -> Tensor: ...\n\n"
    text = f"class {name}(NamedTuple):\n"
    for field in fields:
        text += f"    {field}: Tensor" + ("  # type: ignore[assignment]\n" if hasattr(tuple, field) else "\n")
    return text + "\n"


def added_methods():
    """Removes what Python added to the classes, and returns it as a stub has it: methods, and classes of results."""
    import fusor
    from fusor import _ops

    text, results = "", ""
    methods = _ops.methods()
    for name in _ops.added:
        delattr(fusor.GraphBuilder, name)
        kind = methods[name]
        results += "".join(result_tuple(*each) for each in kind.result_tuples().items())
        document = textwrap.indent(kind.document(), " " * 8).strip()
        ways = kind.signatures()
        for way in ways:
            text += "    @overload\n" if len(ways) > 1 else ""
            text += f'    {way}:\n        """{document}\n        """\n\n'
    call = fusor.Executable.__call__.__doc__
    del fusor.Executable.__call__
    return text, results, textwrap.indent(
        f'def __call__(self, *arrays, stream=None, workspace=None, **named) -> object:\n    """{call}"""\n\n', "    "
    )


def into_class(stub, name, text):
    """Puts text at the end of a class."""
    begin = stub.index(f"class {name}:")
    end = stub.find("\nclass ", begin + 1)
    other = stub.find("\ndef ", begin + 1)
    end = min(e for e in (end, other, len(stub)) if e > 0)
    return stub[:end].rstrip() + "\n\n" + text.rstrip() + "\n\n" + stub[end:]


def main():
    package, output = sys.argv[1:]
    sys.path.insert(0, package)
    from nanobind.stubgen import StubGen

    methods, results, call = added_methods()
    import fusor._fusor

    generator = StubGen(fusor._fusor)
    generator.put(fusor._fusor)
    stub = generator.get()
    stub = stub.replace("from fusor import Error as Error\n", "")
    stub = stub.replace("class ErrorKind(", ERROR + "\nclass ErrorKind(", 1)
    stub = into_class(into_class(stub, "GraphBuilder", methods), "Executable", call)
    stub = stub.replace("from typing import ", "from typing import Literal, NamedTuple, ", 1) + "\n" + results
    compile(stub, output, "exec")
    pathlib.Path(output).write_text(stub)


if __name__ == "__main__":
    main()
