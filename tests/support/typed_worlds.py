"""What the pages' commands speak of: made-up tables, and what is smaller than on the page so that a test has time."""

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
DIGITS = {"--dataset fashion": "--dataset digits"}  # 1,437 records in the place of 60,000


@dataclass(frozen=True)
class World:
    """A folder's files, and what of a printed line is exchanged."""

    prepare: Callable[[Path], None]
    exchanged: dict[str, str] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)  # the code with which a line ends, where that is not 0
    needs: str = "jax"  # without which the page's commands do not run


def table(path: Path, head: str, row: Callable[[random.Random, int], list], count: int = 900, by: str = ",") -> None:
    """A table of so many rows."""
    dice = random.Random(1)
    lines = [by.join(map(str, row(dice, number))) for number in range(count)]
    path.write_text("\n".join([head.replace(" ", by), *lines]) + "\n", encoding="utf-8")


def nothing(folder: Path) -> None:
    """The command needs no file."""


# --- tables -------------------------------------------------------------------------------------------------


def patients(folder: Path) -> None:
    """docs/hospital.md: every kind of column; new.csv is of patients whose outcome is not known."""
    head = "patient age ward smoker admitted lab sex case_number outcome"
    table(folder / "patients.csv", head, _patient, 240, by=";")
    table(folder / "new.csv", head.removesuffix(" outcome"), lambda dice, n: _patient(dice, n)[:-1], 5, by=";")


def _patient(dice: random.Random, number: int) -> list:
    ill = dice.random() < 0.5
    age = "" if dice.random() < 0.1 else round(dice.gauss(68 if ill else 45, 8))
    day = f"{dice.randint(1, 28):02}.{dice.randint(1, 12):02}.{dice.randint(2020, 2025)}"
    lab = f"{dice.uniform(8, 16) if ill else dice.uniform(2, 10):.1f}".replace(".", ",")
    ward = dice.choice(["surgery", "paediatrics", "cardiology", ""])
    return [f"P{number // 2}", age, ward, dice.choice(["no", "yes"]), day, lab, dice.choice("fm"), 1000 + number,
            ["well", "ill"][ill]]  # fmt: skip


def measures(path: Path, *answers: Callable[[random.Random, float], object], head: str, first: str = "") -> None:
    """Two numbers and what may be said of them; before them `first` and a number, where a column is wanted."""

    def row(dice: random.Random, number: int) -> list:
        a, b = dice.gauss(0, 1), dice.gauss(0, 1)
        whose = [f"{first}{number // 3}"] if first else []
        return [*whose, f"{a:.3f}", f"{b:.3f}", *(say(dice, a) for say in answers)]

    table(path, head, row)


def kinds(folder: Path) -> None:
    """docs/data.md: a table with an id, a folder with a table for each client, and features of images."""

    def kind(dice: random.Random, a: float) -> str:
        return ("cat", "dog")[a > 0]

    measures(folder / "mine.csv", kind, head="id weight height kind", first="R")
    measures(folder / "held-out.csv", kind, head="weight height kind")
    (folder / "hospitals").mkdir()
    for name in ("berlin", "lyon"):
        measures(folder / "hospitals" / f"{name}.csv", kind, head="weight height kind")
    x, y = np.random.default_rng(0).normal(size=(900, 64)).astype(np.float32), np.arange(900) % 2
    images = {"x_train": x[:800], "y_train": y[:800], "x_test": x[800:], "y_test": y[800:]}
    np.savez(folder / "photos.npz", **images)


def tasks(folder: Path) -> None:
    """docs/tasks.md: a number, two classes, several labels, a count."""
    measures(folder / "diabetes.csv", lambda dice, a: round(150 + 40 * a), head="age bmi target")
    measures(folder / "lumps.csv", lambda dice, a: int(a > 0), head="size edge benign")
    two = [lambda dice, a: int(a > 0), lambda dice, a: int(dice.random() < 0.5)]
    measures(folder / "patients.csv", *two, head="age bmi diabetic smoker")
    measures(folder / "visits.csv", lambda dice, a: min(20, round(abs(5 * a))), head="age bmi visits")


def visits(folder: Path) -> None:
    """docs/protection.md: three records of each patient."""
    measures(folder / "visits.csv", lambda dice, a: "ab"[a > 0], head="patient weight height label", first="P")


def budgets(folder: Path) -> None:
    """docs/budgets.md: three clients' own."""
    (folder / "budgets.csv").write_text("client,epsilon,delta\n0,0.5,1e-5\n1,1,1e-5\n2,5,1e-6\n")


# --- files of the project -----------------------------------------------------------------------------------


def examples(folder: Path) -> None:
    for name in ("heavyball.py", "two_layers.py", "rings.py"):
        shutil.copy(ROOT / "examples" / name, folder)


def demo_experiment(folder: Path) -> None:
    """docs/experiments.md: its files, over fewer records, rounds and methods."""
    _experiment(folder, "demo", {'"fashion"': '"digits"', "rounds = 30": "rounds = 3"})
    few = {'"cifar10-resnet20"': '"digits"', "[0.5, 1, 5, 10]": "[5]", "\n[methods]": "rounds = 2\n\n[methods]"}
    _experiment(folder, "tune-cifar10", few, until="DP-FedYogi")


def private_tuning(folder: Path) -> None:
    _experiment(folder, "private-tuning", {'recipe = "auto"': 'recipe = "auto"\nrounds = 5'})


def _experiment(folder: Path, name: str, smaller: dict[str, str], until: str | None = None) -> None:
    text = (ROOT / "experiments" / f"{name}.toml").read_text()
    for written, mine in smaller.items():
        assert written in text, f"{name}.toml no longer says {written}"
        text = text.replace(written, mine)
    (folder / "experiments" / "tuned").mkdir(parents=True, exist_ok=True)  # as in a checkout
    (folder / "experiments" / f"{name}.toml").write_text(text.partition(until)[0] if until else text)


def everything(folder: Path) -> None:
    """docs/reference/commands.md: a line of each page."""
    demo_experiment(folder)
    measures(folder / "mine.csv", lambda dice, a: "ab"[a > 0], head="weight height label")
    shutil.copy(folder / "mine.csv", folder / "new.csv")
    shutil.copy(ROOT / "examples" / "rings.py", folder)
    (folder / "mine.py").write_text((ROOT / "examples" / "heavyball.py").read_text().replace("heavyball", "mine"))
    (folder / "net.py").write_text((ROOT / "examples" / "two_layers.py").read_text().replace("two_layers", "net"))


ATTACKS = {
    "audit --method fedsofim --epsilon 1": "audit --trials 2000 --method fedsofim --epsilon 1",
    "audit --method scaffold": "audit --trials 2000 --method scaffold",
    "audit --node": "audit --trials 40 --node",
}
ON_DIGITS = "run --dataset digits --method ./"
WORLDS = {
    "README.md": World(nothing, needs="flwr"),
    "CONTRIBUTING.md": World(examples, {"run --method ./": ON_DIGITS}),
    "docs/audit.md": World(nothing, ATTACKS, ends={"fedsofim audit --broken reused-noise": 1}),
    "docs/budgets.md": World(budgets, {"run ": "run --dataset digits "}),
    "docs/data.md": World(kinds),
    "docs/experiments.md": World(demo_experiment),
    "docs/explanation/trust.md": World(nothing),
    "docs/hospital.md": World(patients),
    "docs/how-to/tune.md": World(nothing),
    "docs/models.md": World(nothing),
    "docs/private-tuning.md": World(private_tuning),
    "docs/protection.md": World(visits),
    "docs/recipe.md": World(nothing, DIGITS),
    "docs/reference/commands.md": World(
        everything,
        {
            "limit --dataset fashion": "limit --dataset ./rings.py",
            **DIGITS,
            "run --method ./": ON_DIGITS,
            "audit --method fedsofim --epsilon 1": "audit --trials 2000 --method fedsofim --epsilon 1",
        },
    ),
    "docs/tasks.md": World(tasks),
    "docs/theory.md": World(nothing, DIGITS),
}
