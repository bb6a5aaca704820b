"""Owns docs/cpp-reference.md: what the public headers declare - those that <fusor.h> reaches - with their docstrings. Fails where
the page is stale; --write writes it.

usage: cpp_reference.py ROOT [--write]"""

import pathlib
import re
import sys

HEAD = """<!-- Owns the reference of the C++ interface. Generated: cmake --build build --target fusor_api_reference -->
# C++ reference

What `#include <fusor.h>` declares in the namespace `fusor`, made of the headers and their comments. Ops: the methods of
`GraphBuilder` that are named as in the [op reference](op-reference.md). Every mistake throws `Error`, whose message names the thing
and the numbers.

"""
# Declarations that only the library itself needs.
HIDDEN = re.compile(
    r"^(friend |static void visit\(|static constexpr|using namespace|~|template <class Self, class Visitor>)|operator==|= delete"
)
# What a struct of core/ops says to the library, not to its users.
SAID_OF_OPS = re.compile(r"\b(kind|roles|infer|expand|fill_omitted|kinds|needs_reals|has|visit|clone|equals)\(")
INNER = ("core/overloaded.h", "core/api.h")  # headers that no user names


def without_noise(text):
    """The text without what the preprocessor reads and without comments that are no docstrings."""
    table = r'(enum class \w+ : \w+ \{\n(?:#define[^\n]*\n)*)#include "(core/[\w/]+\.def)"'
    text = re.sub(table, r"\1///< one for each row of \2", text)
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"(?<![/:])//(?!/)[^\n]*", "", text)
    return re.sub(r"\b(class|struct) FUSOR_API ", r"\1 ", text)


def closing(text, open_at):
    """The place of the brace that closes the one at open_at."""
    depth, i = 0, open_at
    while i < len(text):
        if text[i] == '"' or text[i] == "'" and not text[i - 1].isalnum():
            quote, i = text[i], i + 1
            while text[i] != quote:
                i += 2 if text[i] == "\\" else 1
        elif text.startswith("//", i):
            i = text.index("\n", i)
        depth += (text[i] == "{") - (text[i] == "}")
        if depth == 0:
            return i
        i += 1
    raise ValueError(text[open_at : open_at + 60])


def head_end(text, i):
    """Where a declaration's head ends: at its ';', or at the '{' of its body."""
    depth = 0
    while i < len(text):
        c = text[i]
        if c == "{" and depth == 0 and not re.search(r"(=|\w>|\breturn)\s*$", text[:i][-40:]):
            return i
        if c == "{":
            i = closing(text, i)
        elif c in "(":
            depth += 1
        elif c in ")":
            depth -= 1
        elif c == ";" and depth == 0:
            return i
        i += 1
    return i


def declarations(text):
    """(docstring, head, body or None, label) of each declaration in a scope, in order; label: "public" and so on."""
    i, documents, label = 0, [], None
    while i < len(text):
        if text[i].isspace():
            i += 1
            continue
        if text.startswith("///", i):
            end = text.index("\n", i) if "\n" in text[i:] else len(text)
            documents.append(text[i:end])
            i = end
            continue
        found = re.match(r"(public|private|protected):", text[i:])
        if found:
            label, documents, i = found[1], [], i + found.end()
            continue
        end = head_end(text, i)
        head, body = re.sub(r"\s+", " ", re.sub(r"///<[^\n]*", "", text[i:end])).strip(), None
        if end < len(text) and text[end] == "{":
            close = closing(text, end)
            body, end = text[end + 1 : close], close
            behind = re.match(r"\s*;", text[end + 1 :])
            if re.match(r"(template <.*> )?(class|struct|enum|union) ", head) and behind:
                end += behind.end()
        i = end + 1
        trailing = re.match(r"[ \t]*(///<[^\n]*(?:\n[ \t]*///<[^\n]*)*)", text[i:])
        if trailing:
            documents.append(trailing[1])
            i += trailing.end()
        if head:
            yield joined(documents), head, body, label
        documents = []


def joined(documents):
    lines = [re.sub(r"^\s*///<?\s?", "", line) for each in documents for line in each.split("\n")]
    return " ".join(line.strip() for line in lines).strip()


def wrapped(text, indent, width=110):
    """A docstring as comment lines."""
    lines, line = [], ""
    for word in text.split():
        if line and len(indent) + 4 + len(line) + 1 + len(word) > width:
            lines.append(line)
            line = ""
        line = f"{line} {word}".strip()
    return "".join(f"{indent}/// {each}\n" for each in [*lines, line] if each)


def folded(head, indent, width=110):
    """A long head, broken behind commas."""
    text, rest = "", f"{indent}{head};"
    while len(rest) > width and ", " in rest[40:width]:
        at = rest.rindex(", ", 40, width) + 1
        text += rest[:at] + "\n"
        rest = indent + "    " + rest[at:].strip()
    return text + rest + "\n"


def members(body, is_class, hidden, indent="  "):
    text = ""
    for document, head, inner, label in declarations(body):
        if (label or ("private" if is_class else "public")) != "public" or any(each.search(head) for each in hidden):
            continue
        if inner is not None and re.match(r"(class|struct|enum) ", head):
            kind = head.split(" ")[0]
            inside = enumerators(inner) if kind == "enum" else members(inner, kind == "class", hidden, indent + "  ")
            text += wrapped(document, indent) + f"{indent}{head} {{\n{inside}{indent}}};\n"
            continue
        if inner is not None:
            head = re.sub(r"\) (: .*)$", ")", head)  # a constructor's initializers
        line = folded(head, indent)
        if document and len(line) + len(document) < 108 and line.count("\n") == 1:
            text += line.rstrip("\n") + f"  ///< {document}\n"
        else:
            text += wrapped(document, indent) + line
    return text


def enumerators(body):
    return "".join(f"  {line.strip().replace('///<', '//', 1)}\n" for line in body.split("\n") if line.strip())


def entities(text, hidden):
    """(name, docstring, code) of each declaration of the namespace fusor."""
    for document, head, body, _ in declarations(text):
        if head.startswith("namespace") and body is not None:
            if re.match(r"namespace fusor$", head):
                yield from entities(body, hidden)
            continue
        name = re.match(r"(?:template <.*?> )?(?:requires.*? )?(?:class|struct|enum class|enum) (\w+)", head)
        if name and body is not None:
            inside = enumerators(body) if head.startswith("enum") else members(body, " class " in f" {head}", hidden)
            yield name[1], document, f"{head} {{\n{inside}}};\n" if inside else f"{head} {{}};\n"
        elif not name and not HIDDEN.search(head) and (document or "FUSOR_API" in head):
            called = re.search(r"\bconcept (\w+)", head) or re.search(r"(\w+)\(", head) or re.search(r"(\w+)(?: =.*)?$", head)
            if "(" not in head or re.match(r"FUSOR_API |inline |constexpr |template ", head):
                yield called[1], document, folded(head.replace("FUSOR_API ", ""), "")


def headers(root):
    """The headers that fusor.h reaches: those that it names first, each as its path."""
    found, queue = [], ["fusor.h"]
    while queue:
        path = queue.pop(0)
        if path in found or not path.endswith(".h"):
            continue
        found.append(path)
        queue += re.findall(r'^#include "([\w./]+)"', (root / path).read_text(), re.MULTILINE)
    return [path for path in found[1:] if path not in INNER]


def section(root, path):
    text = (root / path).read_text()
    owns = re.match(r"(?://[^\n]*\n)+", text)
    about = " ".join(re.sub(r"^//\s?", "", line) for line in owns[0].strip().split("\n")) if owns else ""
    about = re.sub(r"^Owns ", "", about)
    page, shown = "", set()
    hidden = (HIDDEN, SAID_OF_OPS) if path.startswith("core/ops/") else (HIDDEN,)
    for name, document, code in entities(without_noise(text[owns.end() if owns else 0 :]), hidden):
        if not document and page.endswith(";\n```\n\n") and "{" not in code:  # what the docstring in front says of both
            page = page.removesuffix("```\n\n") + f"{code}```\n\n"
            continue
        if name not in shown:
            shown.add(name)
            page += f"### {name}\n"
        page += (f"{document}\n\n" if document else "") + f"```cpp\n{code}```\n\n"
    if not re.match(r"[a-z]+[_(]", about):  # a function's name stays as it is
        about = about[:1].upper() + about[1:]
    return f"## {path}\n{about}\n\n{page}" if page else ""


def main():
    root = pathlib.Path(sys.argv[1])
    path = root / "docs/cpp-reference.md"
    text = HEAD + "".join(section(root, each) for each in headers(root))
    text = text.rstrip() + "\n"
    count = text.count("\n### ")
    if "--write" in sys.argv:
        path.write_text(text)
    elif not path.exists() or path.read_text() != text:
        print(f"{path} is stale: build the target fusor_api_reference")
        return 1
    print(f"{count} names")
    return 0 if count > 100 else 1


if __name__ == "__main__":
    sys.exit(main())
