"""Compiles every block of C++ of the pages against libfusor and runs those with a main() on the CPU; checks that every block
of JSON parses and that every block of shell is valid shell. Blocks of internals ("```cpp" in add-*.md) are left out.

usage: programs.py CXX INCLUDE LIBRARY FOLDER PAGE..."""

import json
import os
import pathlib
import re
import subprocess
import sys

AROUND = "#include <fusor.h>\n#include <iostream>\nusing namespace fusor;\nvoid block() {{\n{}\n}}\n"


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def compiled(cxx, include, library, folder, text, name):
    program = "int main(" in text
    source = folder / f"{name}.cpp"
    source.write_text(text if program else AROUND.format(text))
    command = [cxx, "-std=c++20", f"-I{include}", source]
    command += ["-o", folder / name, library, "-lpthread"] if program else ["-fsyntax-only"]
    subprocess.run([str(word) for word in command], check=True)
    if program:
        environment = {**os.environ, "LD_LIBRARY_PATH": str(library.parent)}
        subprocess.run([str(folder / name)], check=True, env=environment, stdout=subprocess.DEVNULL, timeout=120)


def main():
    cxx, include, library, folder, *pages = sys.argv[1:]
    folder, library = pathlib.Path(folder), pathlib.Path(library).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    count = 0
    for page in map(pathlib.Path, pages):
        for i, text in enumerate(blocks(page, "json")):
            json.loads(re.sub(r"(?m)//.*$", "", text)) if "..." not in text else None
            count += 1
        for text in blocks(page, "sh"):
            subprocess.run(["bash", "-n", "-c", text], check=True)
            count += 1
        if page.name.startswith("add-") or page.name in ("op-reference.md", "cpp-reference.md"):  # made of op_examples.cpp, of headers
            continue
        for i, text in enumerate(blocks(page, "cpp")):
            compiled(cxx, include, library, folder, text, f"{page.stem}_{i}".replace("-", "_"))
            count += 1
    print(f"{count} blocks of {len(pages)} pages")
    return 0 if count > 10 else 1


if __name__ == "__main__":
    sys.exit(main())
