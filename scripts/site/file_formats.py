"""The versions of files, from the code that checks them (src/fedsofim/formats.py)."""

from fedsofim.formats import ALL, Format


def text() -> str:
    """A line for each kind of file."""
    head = "| file | version written | versions read | where it says so |\n|---|--:|--:|---|\n"
    return head + "\n".join(map(line, ALL))


def line(kind: Format) -> str:
    """One of them.

    >>> line(Format("a policy", 1, (1,), unstated=1))
    '| a policy | 1 | 1 | `format`; left out, it is 1 |'
    """
    says = f"`{kind.key}`" + ("" if kind.unstated is None else f"; left out, it is {kind.unstated}")
    return f"| {kind.name} | {kind.writes} | {', '.join(map(str, kind.reads))} | {says} |"
