"""Opens the pages of `fusor explain --html` in a headless browser and compares what is drawn with the graph. Skipped (77)
where there is no Chromium.

usage: page.py FUSOR FOLDER GRAPH..."""

import json
import pathlib
import re
import shutil
import subprocess
import sys

SEARCH = "<script>const field = document.getElementById('search'); field.value = WORD; field.dispatchEvent(new Event('input'));</script>"


def drawn(browser, page, folder):
    """The document after its scripts have run."""
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}",
               "--window-size=1400,900", "--virtual-time-budget=2000", "--dump-dom", page.as_uri()]  # fmt: skip
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=100).stdout


def check(fusor, browser, graph, folder):
    page = folder / f"{graph.stem}.html"
    command = [fusor, "explain", graph, "--device", "H200", "--html", page, "--json"]
    told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    word = told["fusions"][0]["ops"][0]
    page.write_text(page.read_text().replace("</body>", SEARCH.replace("WORD", json.dumps(word)) + "</body>"))
    document = drawn(browser, page, folder)
    ready = re.search(r'data-ready="(\d+) fusions, (\d+) edges"', document)
    assert ready, f"{graph.name}: the page's script failed"
    assert int(ready[1]) == len(told["fusions"]), (ready[0], len(told["fusions"]))
    assert int(ready[2]) >= len(told["fusions"]), ready[0]
    boxes = re.findall(r'<g class="box fusion[^"]*"', document)
    assert len(boxes) == len(told["fusions"]), boxes
    assert len(re.findall(r'<g class="box fusion found[^"]*"|<g class="box fusion chosen found', document)) == 1, boxes
    for fusion in told["fusions"]:
        assert f"{fusion['engine']}" in document
    assert "What was considered" in document and 'class="refused"' in document
    assert "NaN" not in document and "undefined" not in re.sub(r"<script.*?</script>", "", document, flags=re.DOTALL)


def main():
    fusor, folder, *graphs = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        print("skipped: there is no Chromium")
        return 77
    folder.mkdir(parents=True, exist_ok=True)
    for graph in graphs:
        check(fusor, browser, graph, folder)
    print(f"{len(graphs)} pages drawn")
    return 0


if __name__ == "__main__":
    sys.exit(main())
