"""`fedsofim audit`: an attacker's own number beside what is promised."""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from fedsofim import models
from fedsofim.cli.options import BudgetOptions, Json, MethodOptions, ScaleOptions, grouped
from fedsofim.cli.tables import out as console
from fedsofim.core.models import HEAD
from fedsofim.errors import InputError, one_of
from fedsofim.files import write_text
from fedsofim.progress import progress_bar


@dataclass(frozen=True, kw_only=True)
class KindOptions:
    all_: Annotated[bool, typer.Option("--all", help="Every kind of mechanism, every broken engine: a table.")] = False
    one_run: Annotated[bool, typer.Option("--one-run", help="Many canaries in one training, instead of many runs.")] = (
        False
    )
    node: Annotated[
        int, typer.Option(help="Attack so many deployed nodes through their message path; more than 1: a secure sum.")
    ] = 0
    min_clients: Annotated[
        int | None, typer.Option(help="With --node: the secure sum can do with so many, and the others are lost.")
    ] = None
    broken: Annotated[str | None, typer.Option(help="An engine broken on purpose; `--broken list` names them.")] = None

    def check(self) -> None:
        if sum([self.all_, self.one_run, self.node > 0, self.broken is not None]) > 1:
            raise InputError("--all, --one-run, --node and --broken are different attacks; give one of them")
        if self.min_clients is not None and self.node < 2:
            raise InputError("--min-clients is for a secure sum; give it with --node 2 or more")


@dataclass(frozen=True, kw_only=True)
class EffortOptions:
    trials: Annotated[int | None, typer.Option(help="Pairs of runs, one in each world; for nodes, of jobs.")] = None
    confidence: Annotated[float, typer.Option(help="How sure the lower bounds are.")] = 0.99
    seed: Annotated[int, typer.Option(help="Seed of the trials; nodes take noise from the system.")] = 0


@dataclass(frozen=True, kw_only=True)
class TargetOptions:
    rounds: Annotated[int, typer.Option(help="Federated rounds T.")] = 70
    clip: Annotated[float, typer.Option(help="Clipping norm of each record's gradient.")] = 10.0
    features: Annotated[int, typer.Option(help="Features of a record.")] = 8
    records: Annotated[int, typer.Option(help="Records of the attacked client, the canary among them.")] = 4
    model: Annotated[str, typer.Option(help="A model's name, or your own ./mine.py.")] = HEAD
    own_server: Annotated[
        bool,
        typer.Option("--own-server", help="The method moves the parameters; else the attacker holds them."),
    ] = False


@grouped
def audit(
    method: MethodOptions,
    budget: BudgetOptions,
    kind: KindOptions,
    target: TargetOptions,
    effort: EffortOptions,
    scale: ScaleOptions,
    out: Annotated[Path | None, typer.Option(help="Folder for audit.json and audit.png.")] = None,
    json_: Json = False,
) -> None:
    """Attack a method: a lower bound on its epsilon from guesses, beside the epsilon that is promised."""
    kind.check()
    one_of("standardize", scale.standardize, ("recipe", "none", "private"))  # public statistics cost nothing to attack
    if kind.broken == "list":
        return _list_broken(json_)
    found = _all(budget, effort) if kind.all_ else _one(method, budget, kind, target, effort, scale)
    documents, failed = found.documents, found.failed
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        write_text(out / "audit.json", json.dumps(documents, indent=2))
        found.draw(out / "audit.png")
    if json_:
        print(json.dumps(documents))
    else:
        found.show()
        if out is not None:
            print(f"wrote {out}/audit.json, audit.png")
    raise typer.Exit(1 if failed else 0)


# --- one attack ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Single:
    verdict: Any

    @property
    def documents(self) -> dict[str, Any]:
        return self.verdict.summary()

    @property
    def failed(self) -> bool:
        return self.verdict.broken

    def draw(self, path: Path) -> None:
        from fedsofim.attack.pictures import draw_verdict

        draw_verdict(self.verdict, path)

    def show(self) -> None:
        s = self.verdict.summary()
        table = Table(title=f"{s['method']}: {s['trials']} trials, {s['releases']} releases in {s['seconds']:.1f} s")
        for name in ("", "promised", "measured", f"at least ({100 * s['confidence']:g} % sure)"):
            table.add_column(name, justify="right" if name else "left")
        interval = " .. ".join(_number(v) for v in s["mu_interval"])
        table.add_row("mu", _number(s["mu"], "-"), f"{_number(s['mu_estimate'])} ({interval})", _number(s["mu_lower"]))
        table.add_row(f"epsilon at delta {s['delta']:g}", _number(s["epsilon"]), "", _number(s["epsilon_lower"]))
        table.add_row("epsilon, any shape of curve", _number(s["epsilon"]), "", _number(s["epsilon_lower_any_shape"]))
        console.print(table)
        console.print(f"[bold red]{s['verdict']}[/]" if s["broken"] else s["verdict"], highlight=False)


def _one(
    method: MethodOptions,
    budget: BudgetOptions,
    kind: KindOptions,
    target: TargetOptions,
    effort: EffortOptions,
    scale: ScaleOptions,
) -> _Single:
    from fedsofim.attack.broken import broken_engine
    from fedsofim.attack.nodes import ASKS, attack_nodes, target_of
    from fedsofim.attack.one_run import OneRun, attack_one_run
    from fedsofim.attack.setting import Setting, honest
    from fedsofim.attack.verdicts import TRIALS, attack

    asked = budget.budget()
    setting = Setting(
        method=method.make(asked.epsilon),
        budget=asked,
        rounds=target.rounds,
        clip=target.clip,
        model=models.make(target.model),
        preparation=scale.steps() or (),
        features=target.features,
        records=target.records,
        own_server=target.own_server,
    )
    sure: dict[str, Any] = {"confidence": effort.confidence}
    if kind.one_run:
        return _Single(attack_one_run(OneRun(setting=setting), seed=effort.seed, **sure))
    pairs = effort.trials or (ASKS if kind.node else TRIALS)
    with progress_bar(f"attacking {kind.broken or setting.method.name}", pairs) as progress:
        if kind.node:
            nodes = target_of(setting, tuple(sorted(method.settings.items())), kind.node, kind.min_clients)
            return _Single(attack_nodes(nodes, pairs=pairs, progress=progress, **sure))
        engine = broken_engine(kind.broken, setting) if kind.broken else honest(setting)
        what = f"{kind.broken} (broken on purpose)" if kind.broken else ""
        return _Single(attack(engine, what=what, pairs=pairs, seed=effort.seed, progress=progress, **sure))


def _list_broken(json_: bool) -> None:
    from fedsofim.attack.broken import BROKEN

    found = {name: (build.__doc__ or "").splitlines()[0] for name, build in BROKEN.items()}
    print(json.dumps(found) if json_ else "\n".join(f"{name}: {about}" for name, about in found.items()))


# --- everything ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Many:
    lines: list[Any]
    seconds: float

    @property
    def documents(self) -> dict[str, Any]:
        rows = [
            {**line.verdict.summary(), "built_broken": line.row.broken, "as_it_should": line.as_it_should}
            for line in self.lines
        ]
        return {"rows": rows, "seconds": round(self.seconds, 1)}

    @property
    def failed(self) -> bool:
        return not all(line.as_it_should for line in self.lines)

    def draw(self, path: Path) -> None:
        from fedsofim.attack.pictures import draw_all

        draw_all(self.lines, path)

    def show(self) -> None:
        table = Table(
            title=f"attacks on every kind of mechanism, {self.seconds:.0f} s; promised: epsilon, mu; measured: the rest"
        )
        table.add_column("what is attacked", no_wrap=True)
        for name in ("epsilon", "mu", "measured mu", "epsilon >="):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("verdict", no_wrap=True)
        for line in self.lines:
            s = line.verdict.summary()
            verdict = "[bold red]CLAIM BROKEN[/]" if s["broken"] else "consistent"
            measured = _with_error(s["mu_estimate"], s["mu_interval"][1])
            numbers = (_number(s["epsilon"]), _number(s["mu"], "-"), measured, _number(s["epsilon_lower"]))
            table.add_row(line.row.what, *numbers, verdict, end_section=_last_right(line, self.lines))
        console.print(table)
        wrong = [line.row.what for line in self.lines if not line.as_it_should]
        good = "Every right mechanism is consistent with its claim, and every broken engine was caught."
        console.print(f"[bold red]NOT AS IT SHOULD BE: {', '.join(wrong)}[/]" if wrong else good, highlight=False)


def _last_right(line: Any, lines: list[Any]) -> bool:
    return not line.row.broken and line is [other for other in lines if not other.row.broken][-1]


def _all(budget: BudgetOptions, effort: EffortOptions) -> _Many:
    from fedsofim.attack.everything import attack_all, rows
    from fedsofim.attack.verdicts import TRIALS

    began = time.perf_counter()
    table = rows(budget.budget(), pairs=effort.trials or TRIALS, confidence=effort.confidence, seed=effort.seed)
    with progress_bar("attacks", len(table)) as progress:
        lines = list(attack_all(table, progress))
    return _Many(lines, time.perf_counter() - began)


def _with_error(value: float | None, high: float | None) -> str:
    """A measured number with half the width of its interval.

    >>> _with_error(0.264, 0.268), _with_error(5000.0, 6000.0)
    ('0.264 ± 0.004', '> 1000')
    """
    if value is None or high is None or value >= 1000:
        return _number(value)
    return f"{value:.3g} ± {high - value:.2g}"


def _number(value: float | None, otherwise: str = "unbounded") -> str:
    """A number of a table, short.

    >>> _number(0.268051), _number(None), _number(4962464.9)
    ('0.268', 'unbounded', '> 1000')
    """
    if value is None:
        return otherwise
    return f"{value:.3g}" if abs(value) < 1000 else "> 1000"
