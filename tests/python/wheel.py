"""Builds a wheel around the extension that was already compiled, installs it into a clean virtual environment and
runs a graph there, without NumPy. With FUSOR_TEST_ALL the wheel is compiled from its sources, as a user's pip does.

usage: wheel.py SOURCE BUILT_PACKAGE FOLDER"""

import os
import pathlib
import shutil
import subprocess
import sys

PROGRAM = """
import array, fusor, importlib.metadata, pathlib
place = pathlib.Path(fusor.__file__).parent
assert str(place).startswith(FOLDER), place
assert (place / "py.typed").exists() and "class GraphBuilder" in (place / "_fusor.pyi").read_text()
assert importlib.metadata.version("fusor") == fusor.__version__
g = fusor.GraphBuilder("first")
x = g.input("x", (3,))
exe = fusor.load(fusor.build(g.finish(g.relu(x * 2 - 1)), "cpu"))
y = array.array("f", [9, 9, 9])
exe.run(array.array("f", [0, 1, 2]), y)
assert list(y) == [0, 1, 3], list(y)
print("wheel: all well")
"""


def main():
    source, built, folder = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]

    def run(*command):
        subprocess.run([str(word) for word in command], check=True, env=environment, cwd=folder)

    as_built = [] if os.environ.get("FUSOR_TEST_ALL") else ["-C", f"cmake.define.FUSOR_PYTHON_BUILT={built}"]
    run(*pip, "wheel", source, "--no-deps", "--no-build-isolation", "--wheel-dir", folder,
        "-C", f"build-dir={folder / 'build'}", *as_built)  # fmt: skip
    run(sys.executable, "-m", "venv", "--without-pip", folder / "venv")
    python = folder / "venv" / "bin" / "python"
    (wheel,) = folder.glob("fusor-*.whl")
    run(*pip, "--python", python, "install", "--no-deps", "--no-index", wheel)
    run(python, "-c", f"FOLDER = {str(folder)!r}{PROGRAM}")


if __name__ == "__main__":
    main()
