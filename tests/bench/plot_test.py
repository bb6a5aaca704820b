"""Tests bench/plot.py: every measured case has a bar of the right direction, the others are named; names are no tags; dots and
curves have a point for each measured case.

usage: plot_test.py PLOT COMPARE_JSON"""

import json
import subprocess
import sys
import xml.dom.minidom


def drawn(plot, text, form="bars"):
    done = subprocess.run([sys.executable, plot, "--as", form, "--title", "a < b"], input=text, capture_output=True, text=True)
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
    swept = [{"id": f"m-{n}", "group": "g", "of_floor": 0.5} for n in (30, 100, 64)] + [{"id": "m-7", "group": "h", "of_floor": 1}]
    text = "\n".join(map(json.dumps, swept))
    assert len(drawn(plot, text, "dots")[1].getElementsByTagName("circle")) == 4
    curves = drawn(plot, text, "curves")[1]
    (line,) = curves.getElementsByTagName("polyline")
    across = [float(point.split(",")[0]) for point in line.getAttribute("points").split()]
    assert across == sorted(across) and len(across) == len(curves.getElementsByTagName("circle")) == 3
    two = [{"id": f"{name}-{n}", "group": "g", "of_floor": 0.5} for name in "ab" for n in (8, 16, 32)]
    again = [{"id": "c-1", "group": "g", "of_floor": 0.5}] * 3
    both = drawn(plot, "\n".join(map(json.dumps, two + again)), "curves")[1]
    assert len(both.getElementsByTagName("polyline")) == 2 and len(both.getElementsByTagName("circle")) == 6
    page = "\n".join(["# Page", "", "A kind: of work", "", "| case | fusor us | best peer | us | ratio |", "|---|---|---|---|---|", "| G1 | 10 | p | 20 | 2.00 |",
                      "| G2 | 10 | p | failed | |", "", "| other | table |", "|---|---|", "| 3 | 4 |"])  # fmt: skip
    drawing, of_page = drawn(plot, page, "dots")
    assert len(of_page.getElementsByTagName("circle")) == 1 and "A kind (1)" in drawing and "mean 2.00" in drawing, drawing
    assert subprocess.run([sys.executable, plot], input="", capture_output=True, text=True).returncode == 1
    print("pictures are right")


if __name__ == "__main__":
    main()
