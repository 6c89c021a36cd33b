"""A mutant: one source file with one bug in it, and our own list of such bugs."""

import hashlib
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SOURCE = Path("src") / "fedsofim"


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One bug. `text` is the whole file with it; `before` and `after` are what a reader is shown."""

    name: str
    group: str  # of our own list: the kind of bug; of the tool's operators: the file
    source: str  # "own" or "operators"
    file: str  # below src/fedsofim
    before: str
    after: str
    text: str

    def key(self, source: str) -> str:
        """Of this bug in this source: a result is kept for exactly that."""
        return hashlib.sha256("\n".join((source, self.file, self.text)).encode()).hexdigest()[:24]


@dataclass(frozen=True)
class Rotten:
    """An entry of our list that no longer fits the source: to be mended, never to be passed over."""

    name: str
    why: str


def planted(tree: Path) -> tuple[list[Mutant], list[Rotten]]:
    """Our own list, applied to a tree; and the entries whose place in the source is gone."""
    mutants: list[Mutant] = []
    rotten: list[Rotten] = []
    for path in sorted((HERE / "planted").glob("*.toml")):
        for entry in tomllib.loads(path.read_text(encoding="utf-8"))["mutation"]:
            made = _made(tree, path.stem.replace("_", " "), entry)
            (mutants if isinstance(made, Mutant) else rotten).append(made)  # type: ignore[arg-type]
    names = [m.name for m in mutants]
    rotten += [Rotten(n, "two entries have this name") for n in sorted({n for n in names if names.count(n) > 1})]
    return mutants, rotten


def _made(tree: Path, group: str, entry: dict[str, Any]) -> Mutant | Rotten:
    name, file, old, new = (entry[k] for k in ("name", "file", "old", "new"))
    path = tree / SOURCE / file
    if not path.is_file():
        return Rotten(name, f"{file} does not exist")
    text = path.read_text(encoding="utf-8")
    if text.count(old) != 1:
        return Rotten(name, f"{file} has its anchor {text.count(old)} times, expected once: {old.strip()!r}")
    changed = text.replace(old, new)
    if changed == text:
        return Rotten(name, "it changes nothing")
    return Mutant(name=name, group=group, source="own", file=file, before=old.strip(), after=new.strip(), text=changed)


def explained() -> list[dict[str, str]]:
    """Survivors that are no gap in the tests, each with the reason: `file`, `before`, `after`, `reason`."""
    return tomllib.loads((HERE / "survivors.toml").read_text(encoding="utf-8")).get("survivor", [])


def reason_for(mutant: Mutant, known: list[dict[str, str]]) -> str | None:
    """Why this mutant may survive, if somebody said so."""
    for entry in known:
        if (entry["file"], entry["before"], entry["after"]) == (mutant.file, mutant.before, mutant.after):
            return entry["reason"]
    return None


def tests_for(file: str) -> list[str]:
    """The tests that concern a file, the quickest to notice first."""
    groups = tomllib.loads((HERE / "tests.toml").read_text(encoding="utf-8"))
    for entry in groups["map"]:
        if file in entry["files"]:
            return entry["tests"]
    raise SystemExit(f"{file}: no tests are named for it in scripts/mutations/tests.toml")
