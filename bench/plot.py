#!/usr/bin/env python3
# Owns the pictures of measurements: the lines of `fusor bench`, or the JSON of bench/compare.py, as one SVG.
"""
usage: build/fusor bench | bench/plot.py > suite.svg          each case's part of its floor (1: nothing could be faster)
       bench/plot.py compare.json > compare.svg               each case's speed relative to the best peer
       bench/plot.py - --title "H200, 2026-11"                a title of your own

One bar a case, on a logarithmic axis around 1, in groups; cases that failed or were not measured are named and have no bar.
"""
import argparse
import html
import json
import math
import statistics
import sys

WIDTH, LEFT, ROW, TOP = 900, 230, 15, 54
COLORS = ["#2f6db5", "#2e8b57", "#b5562f", "#7a4fb0", "#a08a1c", "#b0417a", "#3b8f9c", "#6b6b6b"]


def rows_of_lines(text):
    """(group, id, value or None) of the lines of fusor bench; lines that are no case are left out."""
    rows = []
    for line in filter(None, map(str.strip, text.splitlines())):
        case = json.loads(line)
        if "id" in case and ("of_floor" in case or "error" in case):
            rows.append((case.get("group", "failed"), case["id"], case.get("of_floor")))
    return rows, "part of the floor"


def rows_of_comparison(document):
    rows = []
    for case in document["cases"]:
        peers = [statistics.median(times) for times in case.get("peers", {}).values() if times]
        ratio = min(peers) / statistics.median(case["fusor"]) if peers and case.get("fusor") else None
        rows.append((case["group"], case["id"], ratio))
    return rows, "speed relative to the best peer"


def read(text):
    try:
        document = json.loads(text)
    except json.JSONDecodeError:
        return rows_of_lines(text)
    return rows_of_comparison(document) if "cases" in document else rows_of_lines(text)


def ticks(low, high):
    return [t for t in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if low <= t <= high]


def svg(rows, what, title):
    values = [value for _, _, value in rows if value and value > 0]
    low, high = min([0.5, *values]) / 1.1, max([1.2, *values]) * 1.1
    at = lambda value: LEFT + (WIDTH - LEFT - 70) * math.log(value / low) / math.log(high / low)
    groups = list(dict.fromkeys(group for group, _, _ in rows))
    height = TOP + ROW * (len(rows) + 2 * len(groups)) + 20
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        f'<text x="12" y="20" font-size="15" font-weight="600">{html.escape(title)}</text>',
        f'<text x="12" y="37" fill="#555">{what}; {len(values)} of {len(rows)} cases measured</text>',
    ]
    for tick in ticks(low, high):
        color = "#333" if tick == 1 else "#ddd"
        out.append(f'<line x1="{at(tick):.1f}" x2="{at(tick):.1f}" y1="{TOP}" y2="{height - 16}" stroke="{color}"/>')
        out.append(f'<text x="{at(tick):.1f}" y="{height - 4}" text-anchor="middle" fill="#555">{tick:g}</text>')
    y = TOP
    for number, group in enumerate(groups):
        of_group = [(name, value) for each, name, value in rows if each == group]
        known = [value for _, value in of_group if value and value > 0]
        mean = f", geometric mean {math.exp(statistics.fmean(map(math.log, known))):.2f}" if known else ""
        y += 2 * ROW
        out.append(f'<text x="12" y="{y - 6}" font-weight="600">{html.escape(group)}{mean}</text>')
        for name, value in of_group:
            out.append(f'<text x="{LEFT - 8}" y="{y + 10}" text-anchor="end">{html.escape(name)}</text>')
            if value and value > 0:
                start, end = sorted((at(1), at(value)))
                out.append(f'<rect class="bar" x="{start:.1f}" y="{y + 2}" width="{max(end - start, 1):.1f}" height="{ROW - 4}" '
                           f'fill="{COLORS[number % len(COLORS)]}"><title>{html.escape(name)}: {value:.3f}</title></rect>')
                out.append(f'<text x="{end + 4:.1f}" y="{y + 10}" fill="#555">{value:.2f}</text>')
            else:
                out.append(f'<text x="{at(1) + 6:.1f}" y="{y + 10}" fill="#b00">not measured</text>')
            y += ROW
    return "\n".join([*out, "</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", default="-", metavar="FILE", help="- is standard input")
    parser.add_argument("--title", default="fusor's benchmark suite")
    options = parser.parse_args()
    if options.file == "-":
        text = sys.stdin.read()
    else:
        with open(options.file) as stream:
            text = stream.read()
    rows, what = read(text)
    if not rows:
        sys.exit("plot.py: there is no case to draw")
    sys.stdout.write(svg(rows, what, options.title))


if __name__ == "__main__":
    main()
