"""Markdown as code hosts read it, made into what the site's Markdown reads alike.

Python-Markdown wants an empty line before a list or a table, and four spaces before what goes on inside of a list; code
hosts want neither. Pages are written for both, so this is done here.
"""

import re

ITEM = re.compile(r"^([-*]|\d+\.) +(?=\S)")


def read(text: str) -> str:
    """The page with empty lines before lists and tables, and lists indented by four."""
    return "\n".join(indented(separated(text.split("\n"))))


def separated(lines: list[str]) -> list[str]:
    out: list[str] = []
    fenced = False
    for line in lines:
        fenced ^= line.lstrip().startswith("```")
        before = out[-1] if out else ""
        if not fenced and before.strip() and _begins(line, before):
            out.append("")
        out.append(line)
    return out


def _begins(line: str, before: str) -> bool:
    """A list or a table, after a line that is neither."""
    if line.startswith("|"):
        return not before.startswith("|")
    return bool(ITEM.match(line)) and not ITEM.match(before) and not before.startswith(" ")


def indented(lines: list[str]) -> list[str]:
    out: list[str] = []
    width = 0  # of the marker of the item we are in
    for line in lines:
        if item := ITEM.match(line):
            width = len(item[0])
        elif line.strip() and not line.startswith(" "):
            width = 0
        inside = width and line.startswith(" " * width)
        out.append(" " * (4 - width) + line if inside and width < 4 else line)
    return out
