"""Fails where a page or a message of the program uses a phrase that readers stumbled over; gives the plain one.

usage: words.py ROOT"""

import pathlib
import re
import sys

# (what must not be there, what to say instead)
PLAIN = [
    (r"\bbits behind the point\b", "mantissa bits"),
    (r"\b(held|holds?|holding) (\w+ )?against\b", "compared with"),
    (r"\bmend(s|ed|ing)?\b", "fix, fixed"),
    (r"\b(is|are|was|were) told (of|on|to|about)\b", "is reported on, is sent to"),
    (r"\bwhat is told\b|\btold on stderr\b", "what is reported"),
    (r"\byardstick\b", "reference"),
    (r"\bcop(y|ied by the) engines?\b", "TMA"),
    (r"\b(its|their) kin\b", "and related ..."),
    (r"\bengines? takes?\b", "the engine supports"),
    (r"\btakes short sums\b", "sums in short sums"),
    (r"\bcontents page\b", "shows the passes in order"),
    (r"\bnobody cares\b", "is open"),
    (r"\bthe design said\b", "nothing: pages say what is"),
    (r"\bputs? (it |them )?in words\b", "gives the reason"),
]
SOURCES = ("core", "frontend", "backend", "codegen", "heuristics", "serialization", "tools", "compat/cudnn/src", "python")
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')


def passages(root):
    """(place, text) of the prose of the pages and samples, and of every message: a string of a source file."""
    pages = [root / "README.md", root / "CHANGELOG.md", *sorted((root / "docs").glob("*.md")), *sorted((root / "bench").glob("*.md")), *sorted((root / "samples").rglob("*.cpp"))]
    for page in pages:
        yield page, page.read_text().replace("\n", " ")
    for folder in SOURCES:
        for file in sorted((root / folder).rglob("*")):
            if file.suffix in (".cpp", ".h"):
                text = re.sub(r"//.*|#include.*", "", file.read_text())
                yield file, " \n ".join(LITERAL.findall(re.sub(r'"\s*\n\s*"', "", text)))
            elif file.suffix == ".py":
                yield file, file.read_text().replace("\n", " ")


def main():
    root = pathlib.Path(sys.argv[1])
    assert re.search(PLAIN[1][0], "each is held against the other") and re.search(PLAIN[2][0], "since mended"), "the patterns"
    found, count = [], 0
    for place, text in passages(root):
        count += 1
        for pattern, plain in PLAIN:
            for match in re.finditer(pattern, text, re.IGNORECASE):
                found.append(f"{place.relative_to(root)}: '{match[0]}'; say: {plain}")
    print("\n".join(found) or f"{count} files in plain words")
    return 1 if found or count < 200 else 0


if __name__ == "__main__":
    sys.exit(main())
