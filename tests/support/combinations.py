"""Draw combinations of the options of every command, run them in this process, and judge what comes out.

A combination fails if it ends in a traceback or a warning of Python's, prints anything but one JSON object under
`--json`, or leaves a folder that cannot be read. It may be refused in words; the table of refusals is for people to
read, who may find that some are needless.
"""

import itertools
import json
import random
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

from commands import Done, in_process
from fedsofim import load_model
from fedsofim.methods import PUBLISHED

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
Choice = Sequence[str]  # words of a command line
_FORGET = 50  # combinations after which compiled programs are forgotten

#: Methods of one's own whose server keeps a state of some unusual form.
STATES = {
    "bare": ("jnp.zeros(3)", "state + 1"),
    "scalar": ("jnp.float32(0)", "state + 1"),
    "none": ("None", "None"),
    "nested": ("{'a': [params, ()], 'b': None}", "{'a': [mean, ()], 'b': None}"),
    "empty": ("{}", "{}"),
    "number": ("0", "state + 1"),
}
_METHOD = """
import jax
import jax.numpy as jnp
from fedsofim import Method, OneGradient


def {name}() -> Method:
    def server(mean, state, params, facts):
        return jax.tree.map(lambda p, g: p - (0.1 * g).astype(p.dtype), params, mean), {after}

    return Method("{name}", OneGradient(), server, init=lambda params: {before})
"""


def write_files(folder: Path) -> None:
    """Write everything that the combinations name: tables, arrays, a federation's files, methods, experiments."""
    draw = np.random.default_rng(0)
    for name, (before, after) in STATES.items():
        (folder / f"{name}.py").write_text(_METHOD.format(name=name, before=before, after=after))
    for example in ("heavyball.py", "two_layers.py", "rings.py"):
        shutil.copy(EXAMPLES / example, folder / example)
    n = 90
    x = draw.normal(size=(n, 4)).round(3)
    kind = (x[:, 0] + 0.3 * draw.normal(size=n) > 0).astype(int)
    three = np.digitize(x[:, 1], [-0.5, 0.5])
    columns = {
        **{f"x{j}": x[:, j] for j in range(4)}, "who": [f"p{i % 30}" for i in range(n)],
        "two": np.where(kind, "yes", "no"), "three": three, "one": kind, "other": 1 - kind,
        "amount": (3 * x[:, 2]).round(3), "count": draw.poisson(2, n),
    }  # fmt: skip
    rows = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    (folder / "t.csv").write_text("\n".join(rows))
    np.savez(folder / "t.npz", x_train=x[:70], y_train=three[:70], x_test=x[70:], y_test=three[70:])
    (folder / "sites").mkdir()
    for i, site in enumerate(np.array_split(np.arange(n), 3)):
        (folder / "sites" / f"site{i}.csv").write_text("\n".join([rows[0], *(rows[1 + j] for j in site)]))
    (folder / "budgets.csv").write_text("client,epsilon,delta\n0,1,1e-5\n1,2,1e-5\n2,0.5,1e-6\n")
    (folder / "e.toml").write_text(
        'name = "e"\nepsilons = [1]\nseeds = [0, 1]\nrounds = 3\n'
        'datasets = ["digits"]\npartitions = [{kind = "iid", clients = 2}]\n'
        '[methods]\nDP-FedGD = {method = "fedgd"}\nDP-SCAFFOLD = {method = "scaffold"}\n'
    )


def make_results() -> None:
    """Run the two commands whose results others read, in the folder of the files: a model and a folder of runs."""
    told = ["--clients", "3", "--partition", "iid", "--rounds", "2", "--seed", "3"]
    for words in (["run", *_features("three"), *told, "--out", "saved"], ["compare", "e.toml", "--out", "runs"]):
        done = in_process(*words)
        assert done.returncode == 0, done


def _features(label: str, *more: str) -> Choice:
    others = {"two", "three", "one", "other", "amount", "count"} - {label, *more}
    drop = [word for name in sorted(others) for word in ("--drop", name)]
    return ("--dataset", "t.csv", "--label", label, "--person-column", "who", *drop)


DATA: tuple[Choice, ...] = (
    _features("three"),
    ("--dataset", "digits"),
    (*_features("two"), "--task", "two-classes"),
    (*_features("one", "other"), "--label", "other", "--task", "labels"),
    (*_features("amount"), "--task", "numbers", "--target-range", "-9,9"),
    (*_features("amount"), "--task", "numbers", "--target-range", "-9,9", "--huber", "0.5"),
    (*_features("count"), "--task", "counts", "--target-range", "0,9"),
    ("--dataset", "t.npz"),
    ("--clients-from", "sites", *_features("three")[2:]),
    ("--dataset", "./rings.py"),
)
METHODS: tuple[Choice, ...] = tuple(
    ("--method", name) for name in (*PUBLISHED, "./heavyball.py", *(f"./{s}.py" for s in STATES))
)
EPSILON: tuple[Choice, ...] = (
    (), ("--epsilon", "no-privacy"), ("--epsilon", "0.1"), ("--epsilons", "0.5,1,2"), ("--budgets", "budgets.csv"),
    ("--epsilon", "20", "--delta", "1e-7"),
)  # fmt: skip
CLIENTS: tuple[Choice, ...] = (
    ("--clients", "3", "--partition", "iid"), ("--clients", "3"), ("--clients", "2", "--alpha", "5"), (),
    ("--clients", "7", "--partition", "iid", "--split-seed", "3"), ("--clients", "1", "--partition", "iid"),
)  # fmt: skip
TRUST: tuple[Choice, ...] = ((), ("--trust", "secure-sum"))
RATES: tuple[Choice, ...] = (
    (), ("--batch-rate", "0.5"), ("--batch-rate", "0.01"), ("--client-rate", "0.5", "--trust", "secure-sum"),
    ("--participants", "1"), ("--participants", "2"), ("--participants", "1", "--batch-rate", "0.5"),
)  # fmt: skip
UNITS: tuple[Choice, ...] = (
    (), ("--unit", "person", "--records-per-person", "2"), ("--unit", "client", "--records-per-person", "40"),
    ("--unit", "person"),
)  # fmt: skip
OUTPUT: tuple[Choice, ...] = ((), ("--json",), ("--out", "OUT"), ("--json", "--out", "OUT"))

#: Of each command its factors, each with its choices; the first is the usual one.
COMMANDS: Mapping[str, Mapping[str, Sequence[Choice]]] = {
    "run": {
        "output": OUTPUT,
        "data": DATA,
        "method": (("--method", "fedsofim"), *METHODS),
        "model": ((), ("--model", "mlp", "--set-model", "hidden=3"), ("--model", "cnn", "--set-model", "channels=2,2"),
                  ("--model", "./two_layers.py"), ("--set-model", "start=0.1")),
        "rounds": (("--rounds", "2"), ("--rounds", "1"), ("--rounds", "11")),
        "clients": CLIENTS,
        "trust": TRUST,
        "weights": ((), ("--weights", "uniform"), ("--weights", "size"), ("--weights", "quiet")),
        "epsilon": EPSILON,
        "rates": RATES,
        "unit": UNITS,
        "recipe": ((), ("--recipe", "paper")),
        "standardize": ((), ("--standardize", "none"), ("--standardize", "private"),
                        ("--standardize", "private", "--share", "0.5", "--radius", "1e-3")),
        "clip": ((), ("--clip", "1e-3"), ("--clip", "1e6")),
        "settings": ((), ("--set", "lr=1e-3"), ("--set", "preset=paper-resnet20"), ("--set", "clip_quantile=0.5"),
                     ("--set", "preset=as_published"), ("--set", "noise=tree"), ("--set", "local_steps=2")),
        "seed": (("--seed", "3"), ()),
    },
    "privacy": {
        "json": ((), ("--json",)),
        "method": ((), *METHODS),
        "noise": (("--epsilon", "1"), ("--epsilon", "no-privacy"), ("--epsilon", "0.1"), ("--epsilons", "0.5,rest"),
                  ("--sigma-g", "50")),
        "rounds": ((), ("--rounds", "1"), ("--rounds", "300")),
        "clients": ((), ("--clients", "3"), ("--clients", "3", "--records", "10")),
        "trust": ((), ("--trust", "secure-sum"), ("--trust", "secure-sum", "--clients", "3", "--min-clients", "2")),
        "rates": ((), ("--batch-rate", "0.5"), ("--client-rate", "0.5"), ("--participants", "2")),
        "unit": ((), ("--unit", "person"), ("--unit", "client"), ("--group", "3")),
        "settings": ((), ("--set", "local_steps=3"), ("--set", "preset=as_published"), ("--clip", "0.5")),
    },
    "partition": {
        "output": OUTPUT,
        "data": DATA,
        "clients": CLIENTS,
        "holdout": ((), ("--holdout", "0.5"), ("--holdout", "0"), ("--min-size", "1")),
    },
    "plan": {
        "json": ((), ("--json",)),
        "size": (("--clients", "3", "--records", "100"), ("--sizes", "10,200,30"),
                 ("--clients", "20", "--records", "50000")),
        "shape": (("--features", "20", "--classes", "2"), ("--features", "784", "--classes", "10")),
        "trust": TRUST,
        "unit": ((), ("--unit", "person"), ("--unit", "client")),
        "epsilon": ((), ("--epsilon", "0.1"), ("--epsilon", "no-privacy"), ("--delta", "0.01")),
        "model": ((), ("--model", "mlp"), ("--model", "cnn"), ("--ceiling", "90"), ("--mbit", "10")),
    },
    "limit": {
        "json": ((), ("--json",)),
        "data": DATA,
        "clients": CLIENTS,
        "trust": TRUST,
        "epsilon": ((), ("--epsilon", "0.1"), ("--epsilon", "no-privacy")),
        "recipe": ((), ("--recipe", "paper")),
    },
    "theory": {
        "json": ((), ("--json",)),
        "constants": (("--L", "2"), ("--L", "2", "--mu", "0.1"), ("--radius", "3"),
                      ("--L", "2", "--mu-pl", "0.1", "--g-max", "2"),
                      ("--constants", "records", "--dataset", "digits", "--clients", "2"),
                      ("--constants", "released", "--dataset", "digits", "--clients", "2")),
        "rounds": ((), ("--rounds", "1"), ("--rounds", "500")),
        "noise": (("--epsilon", "1"), ("--epsilon", "0.1"), ("--epsilon", "no-privacy"), ("--sigma-g", "50"),
                  ("--sigma-g", "0")),
        "sofim": ((), ("--rho", "5", "--beta", "0"), ("--eta", "1e3", "--bias-correction")),
    },
    "audit": {
        "json": (("--trials", "100"), ("--trials", "100", "--json"), ("--trials", "100", "--out", "OUT")),
        "method": ((), *METHODS),
        "how": ((), ("--one-run",), ("--own-server",), ("--broken", "list")),
        "size": (("--rounds", "1"), ("--rounds", "2", "--records", "3", "--features", "2")),
        "epsilon": ((), ("--epsilon", "no-privacy"), ("--epsilon", "10", "--delta", "1e-3")),
        "standardize": ((), ("--standardize", "private"), ("--standardize", "none")),
    },
    "predict": {
        "model": (("saved",), ("nothing",), ("runs",)),
        "table": (("t.csv",), ("t.npz",), ("budgets.csv",), ("e.toml",), ("nothing.csv",)),
        "output": (("--out", "OUT.csv"),),
    },
    "model": {
        "model": (("saved",), ("nothing",), ("runs",), ("saved/model.json",)),
        "output": ((), ("--out", "OUT"), ("--onnx", "OUT.onnx"), ("--out", "OUT", "--force")),
    },
    "schema": {
        "table": (("t.csv",), ("t.npz",), ("nothing.csv",)),
        "label": ((), ("--label", "three"), ("--label", "no")),
    },
    "compare": {
        "experiment": (("e.toml",), ("budgets.csv",), ("nothing.toml",)),
        "output": (("--out", "runs"), ("--out", "saved"), ("--out", "t.csv")),
        "how": ((), ("--dry-run",), ("--again",), ("--models",)),
    },
    "report": {
        "folder": (("runs",), ("saved",), ("nothing",)),
        "focus": ((), ("--focus", "DP-FedGD"), ("--focus", "nobody"), ("--published", "sites")),
    },
    "tune": {
        "experiment": (("e.toml",), ("nothing.toml",)),
        "output": (("--out", "OUT.toml"),),
        "strategy": (("--strategy", "random", "--trials", "2"), ("--strategy", "grid"), ("--strategy", "none"),
                     ("--strategy", "common", "--trials", "1", "--private")),
        "rounds": (("--rounds", "2"), ("--rounds", "0")),
    },
    "methods": {"json": ((), ("--json",))},
    "models": {"json": ((), ("--json",))},
}  # fmt: skip


@dataclass(frozen=True)
class Combination:
    """One command line."""

    command: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join(("fedsofim", self.command, *self.words))


@dataclass
class Judged:
    """What became of many combinations."""

    ran: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    @property
    def number(self) -> int:
        """How many combinations were judged."""
        return self.ran + self.refused.total() + len(self.failures)

    def table(self) -> str:
        """The refusals, the commonest first, each with one command line that meets it."""
        lines = [f"{self.ran} ran, {self.refused.total()} were refused, {len(self.failures)} failed"]
        for message, count in self.refused.most_common():
            lines += [f"{count:6d}  {message}", f"        {self.examples[message]}"]
        return "\n".join(lines)


def usual(command: str, deviations: int, seed: int, number: int) -> Iterator[Combination]:
    """Draw combinations in which so many factors are not as usual: few refusals hide what the others would do."""
    factors, draw = COMMANDS[command], random.Random(seed)
    for _ in range(number):
        chosen = {name: choices[0] for name, choices in factors.items()}
        for name in draw.sample(list(factors), min(deviations, len(factors))):
            chosen[name] = draw.choice(factors[name])
        yield _combination(command, chosen)


def pairwise(command: str, seed: int = 0, candidates: int = 24) -> Iterator[Combination]:
    """Draw combinations in which every two choices of different factors meet at least once."""
    factors, draw = COMMANDS[command], random.Random(seed)
    names = list(factors)
    left = {
        (a, i, b, j)
        for a, b in itertools.combinations(names, 2)
        for i, j in itertools.product(range(len(factors[a])), range(len(factors[b])))
    }
    while left:
        a, i, b, j = draw.choice(sorted(left))
        best: tuple[int, dict[str, int]] = (-1, {})
        for _ in range(candidates):
            row = {name: draw.randrange(len(factors[name])) for name in names} | {a: i, b: j}
            best = max(best, (len(_pairs(row, names) & left), row), key=lambda found: found[0])
        left -= _pairs(best[1], names)
        yield _combination(command, {name: factors[name][at] for name, at in best[1].items()})


def _pairs(row: Mapping[str, int], names: Sequence[str]) -> set[tuple[str, int, str, int]]:
    return {(a, row[a], b, row[b]) for a, b in itertools.combinations(names, 2)}


def _combination(command: str, chosen: Mapping[str, Choice]) -> Combination:
    return Combination(command, tuple(word for choice in chosen.values() for word in choice))


def judge(combination: Combination, out: Path, judged: Judged) -> None:
    """Run one combination in the folder of its files; `out` is where it may save, and is emptied."""
    if judged.number % _FORGET == 0:
        jax.clear_caches()  # each compiled program takes some of the memory maps that a process may have
    shutil.rmtree(out, ignore_errors=True)
    out.unlink(missing_ok=True)
    for file in out.parent.glob(f"{out.name}.*"):
        file.unlink()
    words = [word.replace("OUT", str(out)) if word.startswith("OUT") else word for word in combination.words]
    done = in_process(combination.command, *words)
    if problem := _problem(done, words, out):
        judged.failures.append(f"{combination}\n    {problem}")
    elif done.returncode == 0:
        judged.ran += 1
    else:
        message = re.sub(r"\d+(\.\d+)?(e-?\d+)?", "#", done.stderr.strip().splitlines()[-1])[:150]
        judged.refused[message] += 1
        judged.examples.setdefault(message, str(combination))


def _problem(done: Done, words: Sequence[str], out: Path) -> str | None:
    """What is wrong with how a command ended; None if nothing is."""
    said = done.stdout + done.stderr
    if "Traceback" in said or "Warning:" in said:
        return said.strip()[-700:]
    if done.returncode not in (0, 1, 2):
        return f"exit code {done.returncode}: {done.stderr[-300:]}"
    if done.returncode and not re.search(r"^(error:|Error:|Usage:|╭)", done.stderr, re.MULTILINE):
        return f"refused without a reason: {done.stderr[-300:]!r}"
    if "--json" in words:
        return _json_problem(done)
    if done.returncode == 0 and not done.stdout.strip():
        return "it prints nothing"
    return _folder_problem(words, out) if done.returncode == 0 else None


def _json_problem(done: Done) -> str | None:
    if done.returncode:
        return f"--json prints {done.stdout[:200]!r} beside an error" if done.stdout else None
    try:
        json.loads(done.stdout, parse_constant=_no_constant)
    except ValueError as problem:
        return f"--json prints no JSON ({problem}): {done.stdout[:200]!r}"
    return None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _folder_problem(words: Sequence[str], out: Path) -> str | None:
    """A model that was saved can be loaded."""
    if not (out / "model.json").exists():
        return None
    if (out / "result.json").exists():
        json.loads((out / "result.json").read_text(), parse_constant=_no_constant)
    own = next((w for w in words if w.endswith("two_layers.py")), None)
    load_model(out, model=own)
    return None
