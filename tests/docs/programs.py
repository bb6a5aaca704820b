"""Compiles every block of C++ of the pages against libfusor and runs it on this machine; compares what a program prints with the
number in the comment beside the print. Reads every block of JSON: graphs and devices with the command. Every block must have a tag.
What tests/docs/blocks.py calls marks says what cannot be run.

usage: programs.py CXX INCLUDE LIBRARY FUSOR ROOT FOLDER PAGE..."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

from blocks import TAGS, blocks

INCLUDES = "#include <fusor.h>\n#include <iostream>\nusing namespace fusor;\n"
MADE = ("op-reference.md", "cpp-reference.md")  # of tests/docs/op_examples.cpp, which runs, and of headers


def program_of(block):
    """(a whole source, whether it is a program)."""
    if block.mark == "in":
        headers, _, function = block.words.partition("; ")
        text = "".join(f"#include <{each}>\n" for each in headers.split(", ")) + "using namespace fusor;\n"
        return (f"{text}{function} {{\n{block.code}}}\n" if function else text + block.code), False
    if "int main(" in block.code:
        return block.code, True
    return f"{INCLUDES}int main() {{\n{block.code}}}\n", True


def promised(code):
    """The numbers in comments beside what prints them."""
    return re.findall(r"std::cout.*// (-?\d[\d.]*)(?::.*)?$", code, re.MULTILINE)


def compiled(cxx, include, library, root, folder, block):
    """How many numbers were compared."""
    source, is_program = program_of(block)
    name = re.sub(r"\W", "_", str(block))
    path = folder / f"{name}.cpp"
    path.write_text(source)
    command = [cxx, "-std=c++20", path]
    command += [f"-I{include}", "-o", folder / name, library, "-lpthread"] if is_program else [f"-I{root}", "-fsyntax-only"]
    subprocess.run([str(word) for word in command], check=True)
    if not is_program or block.mark == "compiled only":
        return 0
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library.parent)}
    done = subprocess.run([str(folder / name)], env=environment, stdout=subprocess.PIPE, text=True, timeout=120, cwd=folder)
    assert done.returncode == 0, f"{block}: exit code {done.returncode}"
    for number in promised(block.code):
        assert number in done.stdout.split(), f"{block} promises {number}, prints {done.stdout}"
    return len(promised(block.code))


def read(fusor, folder, block):
    """Parses JSON; a whole graph or device is read by the command."""
    if "..." in block.code:
        return
    document = json.loads(block.code)
    path = str(folder / "block_of_page.json")
    pathlib.Path(path).write_text(block.code)
    command = []
    if document.get("kind") == "graph":
        command = [fusor, "plan", path, "--device", "H200", "--no-compile"]
    elif "compute_capability" in document:
        command = [fusor, "plan", str(folder / "block.json"), "--device", path, "--no-compile"]
    if command:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def main():
    cxx, include, library, fusor, root, folder, *pages = sys.argv[1:]
    root, folder, library = pathlib.Path(root), pathlib.Path(folder), pathlib.Path(library).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(root / "tests/tools/graphs/matmul.json", folder / "block.json")
    count = compared = 0
    for page in map(pathlib.Path, pages):
        for block in blocks(page):
            assert block.tag in TAGS, f"{block}: the block's tag is '{block.tag}', not one of {', '.join(TAGS)}"
            count += 1
            if block.tag == "json":
                read(fusor, folder, block)
            elif block.tag == "cpp" and page.name not in MADE:
                compared += compiled(cxx, include, library, root, folder, block)
    print(f"{count} blocks of {len(pages)} pages, {compared} numbers")
    return 0 if count > 60 and compared >= 3 else 1


if __name__ == "__main__":
    sys.exit(main())
