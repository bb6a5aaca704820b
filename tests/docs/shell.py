"""Runs a page's blocks of shell, in a folder of their own in which the tree's folders are found and build/fusor is the command. A
block may stop with exit code 3 where the command says that the machine lacks NVRTC or a GPU. Of a block that is marked as not run, syntax,
scripts and options are checked.

usage: shell.py FUSOR ROOT PAGE"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from blocks import blocks

FOUND = ("bench", "docs", "samples", "tests", "tools", "compat")


def arranged(folder, fusor, root):
    """The tree as its pages see it, and the files that they take for granted."""
    for name in FOUND:
        (folder / name).symlink_to(root / name)
    (folder / "build").mkdir()
    (folder / "build/fusor").symlink_to(fusor)
    for name in ("block.json", "other.json"):
        shutil.copy(root / "tests/tools/graphs/matmul.json", folder / name)
    shutil.copy(root / "tests/bench/compare.json", folder / "compare.json")


def run(block, folder):
    """Whether the block ran to its end."""
    script = block.code.replace("/tmp/", f"{folder}/")
    environment = {**os.environ, "FUSOR_CACHE_DIR": f"{folder}/cache"}
    command = ["bash", "-eu", "-o", "pipefail", "-c", script]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    assert done.returncode == 0 or stops_for_the_machine(done), f"{block}: exit code {done.returncode}"
    return done.returncode == 0


def stops_for_the_machine(done):
    said = done.stdout + done.stderr
    return done.returncode == 3 and re.search("NVRTC cannot be used|no NVRTC|there is no GPU", said)


def check(block, folder):
    """What can be known of a block that is not run."""
    subprocess.run(["bash", "-n", "-c", block.code], check=True)
    helps = {}
    for line in re.sub(r" +#.*", "", block.code).splitlines():
        script = re.match(r"(\w[\w/]*\.(?:sh|py))\b", line)
        assert not script or (folder / script[1]).exists(), f"{block}: there is no {script[1]}"
        command = re.match(r"build/fusor (\w+)(.*)", line)
        if not command:
            continue
        if command[1] not in helps:
            told = subprocess.run([str(folder / "build/fusor"), command[1], "--help"], capture_output=True, text=True, check=True)
            helps[command[1]] = told.stdout
        for option in re.findall(r"--[a-z-]+", command[2]):
            assert re.search(rf"{option}\b(?!-)", helps[command[1]]), f"{block}: fusor {command[1]} has no {option}"


def main():
    fusor, root, page = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    counts = {run: 0, check: 0}
    stopped = 0
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        arranged(folder, fusor, root)
        for block in blocks(page, "sh"):
            how = check if block.mark == "not run" else run
            stopped += how(block, folder) is False
            counts[how] += 1
    print(f"{page.name}: {counts[run]} blocks run, {stopped} of them up to where NVRTC or a GPU is missing, {counts[check]} checked")
    return 0 if sum(counts.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
