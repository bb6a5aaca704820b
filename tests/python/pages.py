"""Runs every block of Python in the pages, one page after the other: the blocks of a page are one program, and where
a line ends in a comment after a print(), that is what is printed. Blocks that need PyTorch are skipped without it.

usage: pages.py PAGE..."""

import contextlib
import importlib.util
import io
import os
import pathlib
import re
import sys
import tempfile


def blocks(text):
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def promised(block):
    """The comments behind print() that are one word: a number."""
    return re.findall(r"^print\(.*\) +# ([-\d.]+)$", block, re.MULTILINE)


def main():
    count = 0
    for page in sys.argv[1:]:
        names = {"__name__": "page"}
        for block in blocks(pathlib.Path(page).read_text()):
            if re.search(r"\btorch\b", block) and importlib.util.find_spec("torch") is None:
                print(f"{page}: a block without PyTorch is left out")
                continue
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                exec(compile(block, page, "exec"), names)
            for line in promised(block):
                assert line in output.getvalue().splitlines(), f"{page} promises {line}:\n{output.getvalue()}"
            count += 1
    print(f"{count} blocks")
    assert count >= 1


if __name__ == "__main__":
    sys.argv[1:] = [os.path.abspath(page) for page in sys.argv[1:]]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        main()
