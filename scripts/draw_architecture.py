"""Draw `docs/architecture.svg`: the rooms as they are on disk, what each holds, and which way imports go. The same in
words is the tree of `docs/architecture.md`, which is written too.

    python scripts/draw_architecture.py

File names and arrows are read from the source, so the picture cannot say what is not so; only the sentences are ours.
"""

import ast
import re
import textwrap
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "fedsofim"
OUT = ROOT / "docs" / "architecture.svg"
PAGE = ROOT / "docs" / "architecture.md"


class Room(NamedTuple):
    name: str
    about: str
    colour: str  # of its arrows
    tint: str  # of its floor


ROOMS = (  # from the top of the house to its ground
    Room("cli", "the commands, thin", "#000000", "#f4f4f4"),
    Room("attack", "an attacker's own number: what was promised, measured from below", "#56B4E9", "#eaf5fc"),
    Room("deploy", "a federation of machines: nodes that keep their own budget, and a server", "#0072B2", "#e8f1f8"),
    Room("experiments", "grids of runs, tuning, and what people read of them", "#D55E00", "#fbeee4"),
    Room("theory", "what can be said before a run: the paper's bounds, and a plan", "#CC79A7", "#f9eef4"),
    Room("simulation", "all clients of a run at once, on this machine", "#009E73", "#e6f5f0"),
    Room("trained", "a trained model in use: predictions, its folder, its card, exports", "#CC79A7", "#faf0f5"),
    Room("recipes", "every choice of a run, from public numbers", "#56B4E9", "#e9f5fc"),
    Room("methods", "the algorithms, one file each", "#882255", "#f5e9ee"),
    Room("models", "what is trained, one file each; modules of other libraries", "#117733", "#e7f1e9"),
    Room("core", "what may leave a client and what it costs; never imports data", "#B8860B", "#fdf5df"),
    Room("data", "files, tables, images, shipped sets; who holds which record", "#7F7F7F", "#f2f2f2"),
    Room("native", "two passes in C++, on arrays only", "#7F7F7F", "#f2f2f2"),
)
ASIDE = {
    "deploy/flower": "the only folder that imports Flower; nothing else imports it",
    "deploy/pages": "pages to look at, on this machine only",
    "models/adapters": "modules of flax, equinox, Keras and torch; each library only where it is used",
    "experiments/report": "tables, statistics, figures, one page",
}
FIRST = "round"  # the page to read first
GROUND = ("extensions", "progress", "settings", "files", "errors", "interrupts")

WIDTH, LEFT, LANES, STEP = 900, 20, 704, 20
TITLE, LINE, PAD, GAP = 22, 17, 12, 10
CHARACTERS = 88  # of a line of file names
SANS = 'font-family="Helvetica, Arial, sans-serif"'
MONO = 'font-family="DejaVu Sans Mono, Menlo, Consolas, monospace"'


def files(folder: Path) -> list[str]:
    """The modules directly in a folder, the C++ beside them, and folders that are no packages."""
    names = {p.stem for p in folder.glob("*.py") if p.stem != "__init__"}
    native = {p.name for p in folder.iterdir() if p.suffix in (".cc", ".h")}
    folders = {f"{p.name}/" for p in folder.iterdir() if p.is_dir() and not (p / "__init__.py").exists()}
    return sorted(names) + sorted(native | folders - {"__pycache__/"})


def imports(room: str) -> set[str]:
    """The rooms that a room imports from."""
    found = {name for path in (SOURCE / room).rglob("*.py") for name in _imported(path)}
    return {r.name for r in ROOMS if r.name in found} - {room}


def _imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{a.name}" for a in node.names}
        elif isinstance(node, ast.Import):
            names |= {a.name for a in node.names}
    return {n.split(".")[1] for n in names if n.startswith("fedsofim.")}


# --- the picture --------------------------------------------------------------------------------------------


def draw() -> str:
    """The whole picture as SVG."""
    parts, floors, y = [_head()], dict[str, tuple[int, int]](), 62
    for room in ROOMS:
        body, height = _room(room, y)
        parts += body
        floors[room.name] = (y, height)
        y += height + GAP
    parts += _ground(y)
    parts += [line for lane, room in enumerate(ROOMS) for line in _arrows(room, lane, floors)]
    height = y + 78
    start = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">'
    white = f'<rect width="{WIDTH}" height="{height}" fill="white"/>'
    return "\n".join([start, white, *parts, "</svg>"]) + "\n"


def _head() -> str:
    return "\n".join(
        [
            _text(LEFT, 28, "fedsofim: the rooms", 18, "bold"),
            _text(
                LEFT,
                49,
                "each imports only from rooms below it (`make lint`); core/round.py is the page to read first",
                13,
            ),
            f'<circle cx="{LANES + 8}" cy="24" r="4.5" fill="white" stroke="#333" stroke-width="2"/>',
            _text(LANES + 20, 28, "this room", 12),
            _head_of_arrow(LANES + 8, 49, "#333"),
            _text(LANES + 20, 48, "imports from this one", 12),
        ]
    )


def _room(room: Room, y: int) -> tuple[list[str], int]:
    """A room's floor with its name, what it is for, and its files; and how high it is."""
    out = [_titled(LEFT + 14, y + TITLE, room.name, 16, room.about)]
    at = y + TITLE + 21
    for line in _wrapped(files(SOURCE / room.name)):
        out.append(_mono(LEFT + 14, at, line))
        at += LINE
    for path, about in ASIDE.items():
        if path.startswith(f"{room.name}/"):
            out += _aside(path, about, at - 6)
            at += _aside_height(path) + 4
    height = at - LINE + PAD - y + 2
    place = f'x="{LEFT}" y="{y}" width="{WIDTH - 2 * LEFT}" height="{height}" rx="6"'
    return [f'<rect {place} fill="{room.tint}" stroke="#cccccc"/>', *out], height


def _aside(path: str, about: str, y: int) -> list[str]:
    """A folder inside a room."""
    height = _aside_height(path)
    box = f'<rect x="{LEFT + 10}" y="{y}" width="{LANES - LEFT - 30}" height="{height - 6}" rx="4" fill="white"/>'
    name = _titled(LEFT + 18, y + 17, path.split("/")[1], 13, about)
    lines = _wrapped(files(SOURCE / path))
    return [box, name, *(_mono(LEFT + 18, y + 35 + LINE * i, line) for i, line in enumerate(lines))]


def _aside_height(path: str) -> int:
    return 32 + LINE * len(_wrapped(files(SOURCE / path)))


def _ground(y: int) -> list[str]:
    """What every room stands on."""
    return [
        f'<rect x="{LEFT}" y="{y}" width="{WIDTH - 2 * LEFT}" height="58" rx="6" fill="#333333"/>',
        _text(LEFT + 14, y + TITLE, "the ground, which every room may stand on", 13, "bold", "white"),
        _mono(LEFT + 14, y + TITLE + 21, "  ".join(GROUND), "white"),
    ]


def _arrows(room: Room, lane: int, floors: dict[str, tuple[int, int]]) -> list[str]:
    """A lane of one room: from its own floor down to every room that it imports from."""
    order = [r.name for r in ROOMS]
    targets = sorted(imports(room.name), key=order.index)
    if not targets:
        return []
    wrong = [t for t in targets if order.index(t) < order.index(room.name)]
    if wrong:
        raise SystemExit(f"{room.name} imports from {', '.join(wrong)}, above it: run `make lint`")
    x, start = LANES + STEP * lane, _middle(floors[room.name])
    ends = [_middle(floors[t]) for t in targets]
    out = [f'<line x1="{x}" y1="{start}" x2="{x}" y2="{ends[-1] - 6}" stroke="{room.colour}" stroke-width="2"/>']
    out.append(f'<circle cx="{x}" cy="{start}" r="4.5" fill="white" stroke="{room.colour}" stroke-width="2"/>')
    return out + [_head_of_arrow(x, end, room.colour) for end in ends]


def _middle(floor: tuple[int, int]) -> int:
    return floor[0] + floor[1] // 2


def _head_of_arrow(x: int, y: int, colour: str) -> str:
    return f'<path d="M{x} {y} l-6 -10 l12 0 z" fill="{colour}"/>'


def _wrapped(names: list[str]) -> list[str]:
    return textwrap.wrap("  ".join(names), CHARACTERS, break_on_hyphens=False)


def _titled(x: int, y: int, name: str, size: int, about: str) -> str:
    """A folder's name and what it is for."""
    rest = f'<tspan dx="12" font-size="{min(size, 13)}" font-weight="normal">{about}</tspan>'
    return _text(x, y, f"{name}/{rest}", size, "bold")


def _text(x: float, y: float, text: str, size: int, weight: str = "normal", colour: str = "#111") -> str:
    style = f'{SANS} font-size="{size}" font-weight="{weight}" fill="{colour}"'
    return f'<text x="{x:g}" y="{y:g}" {style}>{text}</text>'


def _mono(x: float, y: float, text: str, colour: str = "#333") -> str:
    marked = re.sub(rf"\b{FIRST}\b", rf'<tspan font-weight="bold">{FIRST}</tspan>', text)
    return f'<text x="{x:g}" y="{y:g}" {MONO} font-size="12" fill="{colour}" xml:space="preserve">{marked}</text>'


def tree() -> str:
    """The rooms in the order of the alphabet, with what they hold, as plain text."""
    ground = [p.name for p in sorted(SOURCE.glob("*.py"))]
    lines = ["src/fedsofim/", *_listed("", ground)]
    for room in sorted(room.name for room in ROOMS):
        lines += _listed(f"{room}/", files(SOURCE / room))
        for path in sorted(path for path in ASIDE if path.startswith(f"{room}/")):
            lines += _listed(f"  {path.split('/')[1]}/", files(SOURCE / path))
    return "\n".join(lines)


def _listed(name: str, names: list[str]) -> list[str]:
    wrapped = textwrap.wrap("  ".join(names), 106, break_on_hyphens=False)
    return [f"{'' if i else name:<14}{line}" for i, line in enumerate(wrapped)]


def write_tree() -> None:
    """Put the tree in its place on the page."""
    page = PAGE.read_text(encoding="utf-8")
    begin = page.index("```text\nsrc/fedsofim/\n") + len("```text\n")
    end = page.index("\n```", begin)
    PAGE.write_text(page[:begin] + tree() + page[end:], encoding="utf-8")


if __name__ == "__main__":
    OUT.write_text(draw(), encoding="utf-8")
    write_tree()
    print(f"wrote {OUT} and the tree in {PAGE}")
