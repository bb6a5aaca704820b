#!/usr/bin/env python3
# Owns the pictures of measurements: the lines of `fusor bench`, or the JSON of bench/compare.py, as one SVG.
"""
usage: build/fusor bench | bench/plot.py > suite.svg          each case's part of its floor (1: nothing could be faster)
       bench/plot.py compare.json > compare.svg               each case's speed relative to the best peer
       bench/plot.py compare.json --as dots > networks.svg    a line a group, a dot a case, its geometric mean: hundreds of cases
       bench/plot.py sweeps.json --as curves > sweeps.svg     one curve a group over the number that ends its cases' names
       bench/plot.py bench/HISTORY.md --as dots > suite.svg   the tables of a page: | case | fusor us | ... | us | ratio |
       bench/plot.py - --title "H200, 2026-11"                a title of your own

All axes of values are logarithmic. Bars start at 1; cases that failed or were not measured are named and have no bar.
Curves have a dashed line at 0.85, below which a tooth is too deep.
"""
import argparse
import html
import itertools
import json
import math
import re
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


def rows_of_page(text):
    """The cases of a page's tables of fusor's and the best peer's times; a table's group is the line in front of it, up to
    a colon or semicolon."""
    rows, group, line_before, columns = [], "", "", None
    for line in map(str.strip, text.splitlines()):
        cells = [cell.strip() for cell in line[1:-1].split("|")] if line.startswith("|") else []
        if cells[:2] == ["case", "fusor us"] and "best peer" in cells:
            columns, group = (1, cells.index("best peer") + 1), re.split("[:;]", line_before)[0]
        elif cells and columns:
            ours, theirs = (cells[column] for column in columns)
            if re.fullmatch(r"[0-9.]+", ours) and re.fullmatch(r"[0-9.]+", theirs):
                rows.append((group, cells[0], float(theirs) / float(ours)))
        elif not cells:
            columns, line_before = None, line or line_before
    return rows, "speed relative to the best peer"


def read(text):
    if "\n| case | fusor us |" in text:
        return rows_of_page(text)
    try:
        document = json.loads(text)
    except json.JSONDecodeError:
        return rows_of_lines(text)
    return rows_of_comparison(document) if "cases" in document else rows_of_lines(text)


def ticks(low, high):
    return [t for t in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 20, 50, 100) if low <= t <= high]


def opening(height, title, what, rows):
    measured = sum(1 for _, _, value in rows if value)
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        f'<text x="12" y="20" font-size="15" font-weight="600">{html.escape(title)}</text>',
        f'<text x="12" y="37" fill="#555">{what}; {measured} of {len(rows)} cases measured</text>',
    ]


def scale(values, start, end):
    """The range of an axis that holds `values` and 1, and the place of a value on it between `start` and `end`."""
    low, high = min([0.5, *values]) / 1.1, max([1.2, *values]) * 1.1
    return low, high, lambda value: start + (end - start) * math.log(value / low) / math.log(high / low)


def upright_ticks(low, high, at, top, height):
    out = []
    for tick in ticks(low, high):
        color = "#333" if tick == 1 else "#ddd"
        out.append(f'<line x1="{at(tick):.1f}" x2="{at(tick):.1f}" y1="{top}" y2="{height - 16}" stroke="{color}"/>')
        out.append(f'<text x="{at(tick):.1f}" y="{height - 4}" text-anchor="middle" fill="#555">{tick:g}</text>')
    return out


def by_group(rows):
    groups = {}
    for group, name, value in rows:
        groups.setdefault(group, []).append((name, value))
    return groups


def mean_of(cases):
    known = [value for _, value in cases if value]
    return math.exp(statistics.fmean(map(math.log, known))) if known else None


def bar(name, value, y, at, color):
    out = [f'<text x="{LEFT - 8}" y="{y + 10}" text-anchor="end">{html.escape(name)}</text>']
    if not value:
        return [*out, f'<text x="{at(1) + 6:.1f}" y="{y + 10}" fill="#b00">not measured</text>']
    start, end = sorted((at(1), at(value)))
    out.append(f'<rect class="bar" x="{start:.1f}" y="{y + 2}" width="{max(end - start, 1):.1f}" height="{ROW - 4}" '
               f'fill="{color}"><title>{html.escape(name)}: {value:.3f}</title></rect>')
    return [*out, f'<text x="{end + 4:.1f}" y="{y + 10}" fill="#555">{value:.2f}</text>']


def bars(rows, what, title):
    groups = by_group(rows)
    height = TOP + ROW * (len(rows) + 2 * len(groups)) + 20
    low, high, at = scale([value for _, _, value in rows if value], LEFT, WIDTH - 70)
    out = [*opening(height, title, what, rows), *upright_ticks(low, high, at, TOP, height)]
    y = TOP
    for (group, cases), color in zip(groups.items(), itertools.cycle(COLORS)):
        mean = mean_of(cases)
        y += 2 * ROW
        out.append(f'<text x="12" y="{y - 6}" font-weight="600">{html.escape(group)}'
                   f'{f", geometric mean {mean:.2f}" if mean else ""}</text>')
        for name, value in cases:
            out += bar(name, value, y, at, color)
            y += ROW
    return [*out, "</svg>"]


def dots(rows, what, title):
    groups = by_group(rows)
    step = 2 * ROW
    height = TOP + step * len(groups) + 30
    low, high, at = scale([value for _, _, value in rows if value], LEFT, WIDTH - 90)
    out = [*opening(height, title, what + "; the tall mark is the geometric mean", rows),
           *upright_ticks(low, high, at, TOP, height)]
    for number, (group, cases) in enumerate(groups.items()):
        y, color, mean = TOP + step * number + ROW, COLORS[number % len(COLORS)], mean_of(cases)
        out.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{html.escape(group)} ({len(cases)})</text>')
        for name, value in cases:
            if value:
                out.append(f'<circle class="dot" cx="{at(value):.1f}" cy="{y}" r="4" fill="{color}" fill-opacity="0.45">'
                           f'<title>{html.escape(name)}: {value:.3f}</title></circle>')
        if mean:
            out.append(f'<rect x="{at(mean) - 1:.1f}" y="{y - 10}" width="2.5" height="20" fill="#000"/>')
            out.append(f'<text x="{WIDTH - 12}" y="{y + 4}" text-anchor="end">mean {mean:.2f}</text>')
    return [*out, "</svg>"]


def curve(points, across, at, color):
    places = [(across(x), at(value), name, value) for x, name, value in points]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y, _, _ in places)
    return [f'<polyline class="curve" points="{line}" fill="none" stroke="{color}" stroke-width="1.5"/>',
            *(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{color}"><title>{html.escape(name)}: {value:.3f}</title></circle>'
              for x, y, name, value in places)]


def sweeps_of(rows):
    """Group and prefix -> (number, name, value), sorted, of names of a group that differ in their last number alone; three numbers
    and more."""
    found = {}
    for group, name, value in rows:
        number = re.fullmatch(r"(.*?)(\d+)", name)
        if value and number:
            found.setdefault((group, number.group(1)), []).append((int(number.group(2)), name, value))
    return {place: sorted(points) for place, points in found.items() if len({point[0] for point in points}) > 2}


def panel(group, points, top, bottom, color):
    left, right = 60, WIDTH - 20
    low, high, at = scale([value for _, _, value in points], bottom, top)
    first, last = points[0][0], points[-1][0]
    across = lambda x: left + (right - left) * (x - first) / (last - first)
    mean = mean_of([(name, value) for _, name, value in points])
    out = [f'<text x="12" y="{top - 10}" font-weight="600">{html.escape(group)}, geometric mean {mean:.2f}</text>']
    for tick in ticks(low, high):
        out.append(f'<line x1="{left}" x2="{right}" y1="{at(tick):.1f}" y2="{at(tick):.1f}" '
                   f'stroke="{"#333" if tick == 1 else "#ddd"}"/>')
        out.append(f'<text x="{left - 6}" y="{at(tick) + 4:.1f}" text-anchor="end" fill="#555">{tick:g}</text>')
    out.append(f'<line x1="{left}" x2="{right}" y1="{at(0.85):.1f}" y2="{at(0.85):.1f}" stroke="#b00" stroke-dasharray="4 3"/>')
    for x, _, _ in points[:: max(1, len(points) // 12)]:
        out.append(f'<text x="{across(x):.1f}" y="{bottom + 14}" text-anchor="middle" fill="#555">{x}</text>')
    return out + curve(points, across, at, color)


def curves(rows, what, title):
    swept, height_of_each = sweeps_of(rows), 190
    if not swept:
        sys.exit("plot.py: no group has three cases whose names differ in their last number alone")
    names = {name for points in swept.values() for _, name, _ in points}
    shown = [row for row in rows if row[1] in names]
    out = opening(TOP + height_of_each * len(swept), title, what, shown)
    for number, ((group, _), points) in enumerate(swept.items()):
        top = TOP + height_of_each * number + 24
        out += panel(group, points, top, top + height_of_each - 48, COLORS[number % len(COLORS)])
    return [*out, "</svg>"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", default="-", metavar="FILE", help="- is standard input")
    parser.add_argument("--as", dest="form", choices=("bars", "dots", "curves"), default="bars")
    parser.add_argument("--title", default="fusor's benchmark suite")
    options = parser.parse_args()
    if options.file == "-":
        text = sys.stdin.read()
    else:
        with open(options.file) as stream:
            text = stream.read()
    rows, what = read(text)
    rows = [(group, name, value if value and value > 0 else None) for group, name, value in rows]
    if not rows:
        sys.exit("plot.py: there is no case to draw")
    picture = {"bars": bars, "dots": dots, "curves": curves}[options.form](rows, what, options.title)
    sys.stdout.write("\n".join(picture) + "\n")


if __name__ == "__main__":
    main()
