"""Tests bench/plot.py: every measured case has a bar of the right direction, the others are named; names are no tags.

usage: plot_test.py PLOT COMPARE_JSON"""

import json
import subprocess
import sys
import xml.dom.minidom


def drawn(plot, text):
    done = subprocess.run([sys.executable, plot, "--title", "a < b"], input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout, xml.dom.minidom.parseString(done.stdout)


def main():
    plot, compare = sys.argv[1:]
    with open(compare) as stream:
        text = stream.read()
    picture, document = drawn(plot, text)
    cases = json.loads(text)["cases"]
    bars = [bar for bar in document.getElementsByTagName("rect") if bar.getAttribute("class") == "bar"]
    assert 0 < len(bars) < len(cases), len(bars)
    assert picture.count("not measured") == len(cases) - len(bars)
    lines = [{"id": "half", "group": "g", "of_floor": 0.5}, {"id": "<b>", "group": "g", "error": "x"}, {"cases": 2},
             {"id": "one", "group": "h", "of_floor": 1.0}]  # fmt: skip
    picture, document = drawn(plot, "\n".join(map(json.dumps, lines)))
    bars = [bar for bar in document.getElementsByTagName("rect") if bar.getAttribute("class") == "bar"]
    assert len(bars) == 2 and float(bars[0].getAttribute("width")) > float(bars[1].getAttribute("width"))
    assert "&lt;b&gt;" in picture and "geometric mean 0.50" in picture
    assert subprocess.run([sys.executable, plot], input="", capture_output=True, text=True).returncode == 1
    print("pictures are right")


if __name__ == "__main__":
    main()
