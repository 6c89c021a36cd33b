"""The keys of a policy, from the code that reads it: which there are, of what type, and which may be left out.

What each means is the comment beside it in the example that begins `deploy/policy.py`.
"""

import re
from dataclasses import Field, fields

from fedsofim.deploy import policy
from fedsofim.formats import POLICY

LINE = re.compile(r"^(\w+) = (.+?)(?:\s+#\s*(.*))?$")


def text() -> str:
    """A table for each section."""
    meant = meanings()
    top = [f"`{POLICY.key}`", "whole number", str(POLICY.unstated), meant[POLICY.key]]
    sections = {"Before the sections": [top]}
    sections |= {
        f"`[{name}]`": [_key(key, types, meant) for key, types in keys.items()] for name, keys in policy._FIELDS.items()
    }
    sections["`[work]`"] = [_bound(f, meant) for f in fields(policy.Work)]
    return "\n\n".join(f"## {name}\n\n{_table(rows)}" for name, rows in sections.items())


def meanings() -> dict[str, str]:
    """What is said of each key in the example, over as many lines as it takes."""
    out: dict[str, str] = {}
    last = ""
    for line in (policy.__doc__ or "").splitlines():
        if found := LINE.match(line):
            last, out[found[1]] = found[1], found[3] or ""
        elif (more := line.strip()).startswith("#") and last:
            out[last] += f" {more.lstrip('# ')}"
    return out


def _key(key: str, types: tuple[type, ...], meant: dict[str, str]) -> list[str]:
    wanted = " or ".join(
        {"str": "text", "float": "number", "int": "whole number", "list": "list"}[t.__name__] for t in types
    )
    optional = "" if key not in policy._OPTIONAL and key not in ("classes",) else "optional"
    return [
        f"`{key}`",
        wanted.replace("number or whole number", "number"),
        optional,
        meant.get(key, ""),
    ]


def _bound(field: Field, meant: dict[str, str]) -> list[str]:
    return [f"`{field.name}`", "whole number", f"{field.default:,}", meant.get(field.name, "")]


def _table(rows: list[list[str]]) -> str:
    head = "| key | type | if left out | what it says |\n|---|---|---|---|\n"
    return head + "\n".join("| " + " | ".join(row) + " |" for row in rows)
