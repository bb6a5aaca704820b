"""Fails where a page names code that is not in the tree: a path, a C++ or Python name, a CMake option, an environment variable or
a target between backticks. Links are tests/docs/links.py's.

usage: names.py ROOT"""

import pathlib
import re
import subprocess
import sys

# Folders that pages leave out of a path.
BELOW = ("", "docs", "bench", "backend", "backend/engines", "codegen/device", "codegen/device/sm90/load", "core", "tools")
SOURCES = (".cpp", ".h", ".cuh", ".def", ".py", ".pyi", ".sh", ".cmake", ".txt", ".json", ".toml", ".yml", ".in", ".map", ".html", ".md")
# Names of other projects, of PyTorch's, cuDNN's and oneDNN's interfaces, of tools, and places that a text makes up.
ELSEWHERE = set((pathlib.Path(__file__).parent / "elsewhere.txt").read_text().split())
WITNESS_OF_NOTHING = ("elsewhere.txt", "words.py")
GENERATED = ("cudnn-reference.md", "op-reference.md", "cpp-reference.md", "python-reference.md")  # made of the code itself
WORD = re.compile(r"[A-Za-z_]\w*")


def tracked(root):
    """The files of the tree that are its own, as paths."""
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=root, capture_output=True, text=True)
    if listed.returncode == 0 and listed.stdout:
        return [root / line for line in listed.stdout.splitlines() if (root / line).is_file()]
    return [path for path in root.rglob("*") if path.is_file() and not re.match(r"build|\.", str(path.relative_to(root)))]


def words_of(root, files):
    """Every word of the sources, docs excepted: a page is no witness for itself."""
    words = set()
    for path in files:
        at = path.relative_to(root)
        if path.suffix in SOURCES and at.parts[0] != "docs" and at.suffix != ".md" and at.name not in WITNESS_OF_NOTHING:
            words |= set(WORD.findall(path.read_text(errors="replace")))
    return words


def is_path(text):
    return re.fullmatch(r"[\w.*{},-]+(/[\w.*{},-]+)*/?", text) and ("/" in text or re.search(r"\.(cpp|h|cuh|def|py|md|sh|cmake)$", text))


def path_exists(root, text):
    text = text.rstrip("/")
    for folder in BELOW:
        base = root / folder
        if any(base.glob(text)) or any(any(base.glob(text + end)) for end in (".h", ".cuh", ".cpp")):
            return True
    return False


def spans(page):
    """The texts between backticks, without blocks of code."""
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"`([^`\n]+)`", text)


def unknown(root, page, words):
    for text in spans(page):
        if text in ELSEWHERE or re.fullmatch(r"\.\w+", text):  # an ending of files
            continue
        if is_path(text):
            head = text.split("/")[0]
            if not path_exists(root, text) and head not in ("build", "PLACE", "DIR"):
                yield text, "there is no such file"
            continue
        if re.search(r"[\s\"]", text) and not re.fullmatch(r"[\w:]+\(.*\)", text):  # commands, values, formulas
            continue
        for word in WORD.findall(re.sub(r"\(.*|\{.*", "", text)):
            part = page.name == "cudnn.md" and any(word in whole for whole in words)  # there names lose their prefix
            if len(word) > 3 and word not in words and word not in ELSEWHERE and not part:
                yield text, f"{word} is nowhere in the tree"
                break


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    files = tracked(root)
    words = words_of(root, files)
    pages = [page for page in (root / "README.md", *sorted((root / "docs").glob("*.md"))) if page.name not in GENERATED]
    found, count = [], 0
    for page in pages:
        count += len(spans(page))
        found += [f"{page.relative_to(root)}: `{text}`: {why}" for text, why in dict.fromkeys(unknown(root, page, words))]
    print("\n".join(found) or f"{count} names of {len(pages)} pages are there")
    return 1 if found or count < 1000 else 0


if __name__ == "__main__":
    sys.exit(main())
