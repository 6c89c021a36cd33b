"""Fenced blocks of a page, and a reader who does what they say, in their order."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = sorted(str(p.relative_to(ROOT)) for p in (ROOT / "docs").rglob("*.md") if p.parent.parent.name != "results")
PAGES = ["README.md", "CONTRIBUTING.md", *(p for p in DOCS if "/tables/" not in p)]
_FENCE = re.compile(
    r"^(?P<in> *)```(?P<lang>\w*)(?: title=\"(?P<title>[^\"]*)\")?\n(?P<code>.*?)^(?P=in)```$", re.M | re.S
)


@dataclass(frozen=True)
class Block:
    """One fenced block: `lang` is empty where a page gives none, `title` names a file or says who types it."""

    page: str
    line: int
    lang: str
    title: str
    code: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: str) -> list[Block]:
    return list(_blocks(page, (ROOT / page).read_text(encoding="utf-8")))


def _blocks(page: str, text: str) -> Iterator[Block]:
    for found in _FENCE.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        code = re.sub(rf"^{found['in']}", "", found["code"], flags=re.M)
        yield Block(page, line, found["lang"], found["title"] or "", code)


def python_of(page: str) -> list[Block]:
    return [block for block in blocks(page) if block.lang == "python"]


def lines_of(block: Block) -> list[str]:
    """The commands of a block, without what is said beside them."""
    bare = (re.split(r"\s#\s", line)[0].strip() for line in block.code.splitlines())
    return [line for line in bare if line and not line.startswith("#")]


def write(block: Block, folder: Path) -> None:
    (folder / block.title).write_text(block.code, encoding="utf-8")


def execute(block: Block, space: dict) -> None:
    """Run it as part of its page: an error says where it stands."""
    exec(compile("\n" * block.line + block.code, str(ROOT / block.page), "exec"), space)
