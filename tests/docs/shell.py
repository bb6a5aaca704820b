"""Runs the lines of a page's blocks of shell that use build/fusor, in the source folder, with files that they write in a folder
of their own. Exit code 3 - the machine lacks NVRTC - is well.

usage: shell.py FUSOR ROOT PAGE"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile


def main():
    fusor, root, page = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    count = 0
    with tempfile.TemporaryDirectory() as folder:
        for block in re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
            if "build/fusor" not in block:
                continue
            script = block.replace("build/fusor", fusor).replace("/tmp/", folder + "/")
            environment = {**os.environ, "FUSOR_CACHE_DIR": folder + "/cache"}
            done = subprocess.run(["bash", "-eu", "-o", "pipefail", "-c", script], cwd=root, env=environment)
            assert done.returncode in (0, 3), block
            count += 1
    print(f"{count} blocks of {page.name}")
    return 0 if count else 1


if __name__ == "__main__":
    sys.exit(main())
