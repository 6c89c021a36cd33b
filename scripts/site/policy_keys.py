"""The keys of a policy, from the code that reads it: which there are, of what type, and which may be left out.

What each means is the comment beside it in the example that begins `deploy/policy.py`.
"""

import re
from dataclasses import fields

from fedsofim.deploy import policy

LINE = re.compile(r"^(\w+) = (.+?)(?:\s+#\s*(.*))?$")


def text() -> str:
    """A table for each section."""
    meant = meanings()
    sections = {name: [_key(key, types, meant) for key, types in keys.items()] for name, keys in policy._FIELDS.items()}
    sections["work"] = [_bound(f, meant) for f in fields(policy.Work)]
    return "\n\n".join(f"## `[{name}]`\n\n{_table(rows)}" for name, rows in sections.items())


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
        meant.get(key, OTHERS.get(key, "")),
    ]


def _bound(field: object, meant: dict[str, str]) -> list[str]:
    name, default = field.name, field.default
    return [f"`{name}`", "whole number", f"{default:,}", meant.get(name, "")]


#: Keys that the example has no line for.
OTHERS = {
    "classes": "how many classes there are, where records are an .npz file without a schema",
    "mask_key": "this node's key for secure sums: `fedsofim federation mask-key`",
    "witness": "where the node remembers how its ledger ended; the user's state folder if left out",
}


def _table(rows: list[list[str]]) -> str:
    head = "| key | type | if left out | what it says |\n|---|---|---|---|\n"
    return head + "\n".join("| " + " | ".join(row) + " |" for row in rows)
