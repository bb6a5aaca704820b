"""Fails where mkdocs.yml leaves out a page of docs/ or names one that is not there, where docs/environment.md leaves out a
variable that core/environment.h has or an option of the CMake files, and where docs/command.md leaves out a part or an option of the command. Builds the site
where MkDocs is installed.

usage: site.py ROOT FUSOR"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile


def options(root):
    """The options and cache variables that the CMake files declare for users."""
    files = [root / "CMakeLists.txt", *root.glob("cmake/*.cmake"), *root.glob("*/CMakeLists.txt"), *root.glob("*/*/CMakeLists.txt")]
    files = [file for file in files if not file.parts[len(root.parts)].startswith("build")]
    declared = r"^ *(?:option\(|find_program\(|set\((?=\w+ [^)]*CACHE (?:STRING|PATH)))(FUSOR_\w+)(?: [^)]*DOC|[ \n])"
    found = {name for file in files for name in re.findall(declared, file.read_text(), re.MULTILINE)}
    found -= {"FUSOR_PYTHON3"}  # of this folder alone
    assert len(found) >= 12, found
    return found


def complaints(root, fusor):
    docs = root / "docs"
    listed = set(re.findall(r":\s*([\w./-]+\.md)$", (root / "mkdocs.yml").read_text(), re.MULTILINE))
    there = {str(page.relative_to(docs)) for page in docs.rglob("*.md")}
    yield from (f"mkdocs.yml leaves out {page}" for page in sorted(there - listed))
    yield from (f"mkdocs.yml names {page}, which is not there" for page in sorted(listed - there))
    variables = set(re.findall(r"\b(?:FUSOR|CUDNN)_[A-Z_]+", (root / "core/environment.h").read_text()))
    variables |= options(root)
    told = (docs / "environment.md").read_text()
    yield from (f"docs/environment.md leaves out {name}" for name in sorted(variables) if f"`{name}`" not in told)
    help_text = subprocess.run([fusor, "--help"], check=True, capture_output=True, text=True).stdout
    parts = re.findall(r"^  (\w+) +[A-Z]", help_text[help_text.index("Subcommands:") :], re.MULTILINE)
    page = (docs / "command.md").read_text()
    assert len(parts) >= 12, parts
    for part in parts:
        if f"`fusor {part}" not in page:
            yield f"docs/command.md leaves out fusor {part}"
        text = subprocess.run([fusor, part, "--help"], check=True, capture_output=True, text=True).stdout
        for option in sorted(set(re.findall(r"(--[a-z][a-z-]+)", text)) - {"--help"}):
            if option not in page:
                yield f"docs/command.md leaves out {option} of fusor {part}"


def main():
    root, fusor = pathlib.Path(sys.argv[1]), sys.argv[2]
    found = list(complaints(root, fusor))
    installed = root / ".venv/bin/mkdocs"
    mkdocs = str(installed) if installed.exists() else shutil.which("mkdocs")
    if mkdocs and not found:
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([mkdocs, "build", "--quiet", "--strict", "--site-dir", folder], check=True, cwd=root)
            assert (pathlib.Path(folder) / "index.html").exists()
    print("\n".join(found) or "every page, variable and option is told of")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
