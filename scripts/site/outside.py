"""Links from pages to files of the project that are not in docs/, such as ../CONTRIBUTING.md or ../src/fedsofim/....

On a code host they lead there. In the site each such file is a page of its own below repository/, under its own path: a
Markdown file as it is, a program as a listing; whatever else it is, a copy. A link to a folder leads to its README, or
is plain text where it has none.
"""

import os
import re
from pathlib import Path, PurePosixPath

LINK = re.compile(r"(?<!\!)\[(?P<text>[^\]\n]*(?:\n[^\]\n]*)?)\]\((?P<target>[^)#:\s]+)(?P<anchor>#[^)\s]*)?\)")
FENCE = re.compile(r"^ *```.*?^ *```", re.M | re.S)
LISTED = {".py": "python", ".toml": "toml", ".cc": "cpp", ".h": "cpp", ".sh": "sh"}


def files(root: Path, pages: dict[str, str]) -> dict[str, str | bytes]:
    """Where in the site, and what is there, of all that the pages link to and what that links to in turn."""
    out: dict[str, str | bytes] = {}
    waiting = list(pages.items())
    while waiting:
        place, text = waiting.pop()
        for found in LINK.finditer(FENCE.sub("", text)):
            path = in_project(found["target"], place)
            if (there := site_place(path, root)) is None or there in out or path.parts[0] == "docs":
                continue
            out[there] = content = contents(root / path)
            if isinstance(content, str):
                waiting.append((there, content))
    return out


def relinked(text: str, place: str, root: Path) -> str:
    """A page's text with its links as they are in the site."""

    def link(found: re.Match) -> str:
        path = in_project(found["target"], place)
        if (there := site_place(path, root)) is None:
            return found["text"] if (root / path).is_dir() else found[0]
        here = PurePosixPath(place).parent
        return f"[{found['text']}]({os.path.relpath(there, here)}{found['anchor'] or ''})"

    parts, at = [], 0
    for fence in [*FENCE.finditer(text), None]:
        end = fence.start() if fence else len(text)
        parts += [LINK.sub(link, text[at:end]), fence[0] if fence else ""]
        at = fence.end() if fence else end
    return "".join(parts)


def in_project(target: str, place: str) -> PurePosixPath:
    """What a link on a page means, as a path of the project."""
    own = PurePosixPath(place)
    own = own.relative_to("repository") if own.parts[0] == "repository" else "docs" / own
    return PurePosixPath(os.path.normpath(own.parent / target))


def site_place(path: PurePosixPath, root: Path) -> str | None:
    """Where a file of the project is in the site; None if it is nowhere."""
    if (root / path).is_dir():
        path = path / "README.md"
    if not (root / path).is_file():
        return None
    if path.parts[0] == "docs":
        return str(path.relative_to("docs"))
    return f"repository/{path}" + (".md" if path.suffix in LISTED else "")


def contents(path: Path) -> str | bytes:
    if path.suffix in LISTED:
        return f"# `{path.name}`\n\n````{LISTED[path.suffix]}\n{path.read_text()}\n````\n"
    return path.read_text() if path.suffix == ".md" else path.read_bytes()
