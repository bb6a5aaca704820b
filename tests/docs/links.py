"""Fails where a page links to a file that is not there, or to a heading that its page does not have.

usage: links.py ROOT"""

import pathlib
import re
import sys


def anchors(page):
    """The anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    found = set()
    for heading in re.findall(r"^#+ +(.+)$", text, re.MULTILINE):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        found.add(re.sub(r"[^\w\- ]", "", heading).replace(" ", "-"))
    return found


def broken_links(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", text)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            yield f"{page}: {link}: there is no such file"
        elif anchor and anchor not in anchors(target):
            yield f"{page}: {link}: there is no such heading"


def main():
    root = pathlib.Path(sys.argv[1])
    pages = [root / "README.md", root / "CHANGELOG.md", *root.glob("docs/*.md"), *root.glob("bench/*.md")]
    broken = [line for page in pages for line in broken_links(page)]
    print("\n".join(broken) or f"{len(pages)} pages: every link leads somewhere")
    return 1 if broken or len(pages) < 8 else 0


if __name__ == "__main__":
    sys.exit(main())
