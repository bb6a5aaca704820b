"""Owns the reading of a page's blocks of code, for the tests that run them. A comment on the line in front says what a test cannot do:

<!-- not run: REASON -->        shell that needs a GPU, the network or minutes: its syntax and its options are checked
<!-- compiled only: REASON -->  a C++ program that needs a GPU
<!-- in: HEADER, ...; FUNCTION -->  a piece of C++ of the library's inside: the headers that it sees, the function that it stands in"""

import re

TAGS = ("cpp", "sh", "python", "py", "json", "cmake", "cuda", "text")
FENCE = re.compile(r"(?:^ *<!-- (?P<mark>not run|compiled only|in): (?P<words>[^\n]*) -->\n)?^(?P<indent> *)```(?P<tag>\w*)\n(?P<code>.*?)^ *```$",
                   re.DOTALL | re.MULTILINE)  # fmt: skip


class Block:
    def __init__(self, page, match):
        self.page, self.tag, self.code = page, match["tag"], match["code"]
        self.mark, self.words = match["mark"], match["words"] or ""
        self.line = page.read_text()[: match.start("indent")].count("\n") + 1

    def __str__(self):
        return f"{self.page.name}:{self.line}"


def blocks(page, tag=None):
    found = [Block(page, match) for match in FENCE.finditer(page.read_text())]
    return [block for block in found if tag is None or block.tag == tag]
