"""The sections of the suite: each measures one kind of thing and says what that means for the targets."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import fresh
import growth
import numpy as np
import rivals
import server_step
from agreement import difference
from clock import Ratio, Times, by_turns, timed
from growth import EACH, ONE, Curve
from ours import clipped_mean, clipped_sums, one_of_ten, one_theta, round_of, theta_per_client
from parts import NOISE, PASS, PRODUCTS_JAX, PRODUCTS_NUMPY, STEP, noise_of, parts, products, wide
from problem import PATHMNIST, Shape, make, write
from results import Line, PeerLine, StepLine
from targets import Target

from fedsofim.data.partition import Split

Tell = Callable[[str], None]
ONE_OF_TEN, ONE_XLA, EACH_XLA = f"{ONE}, one of ten", f"{ONE}, sums by XLA", f"{EACH}, sums by XLA"


@dataclass(frozen=True)
class Effort:
    """How much is measured; `quick` is for seeing that everything works."""

    quick: bool = False

    @property
    def turns(self) -> int:
        return 2 if self.quick else 8

    @property
    def dimensions(self) -> tuple[int, ...]:
        return (10**4, 10**5, 10**6) if self.quick else (10**4, 10**5, 10**6, 10**7, 10**8)

    @property
    def records(self) -> int:
        """Of the networks' problems."""
        return 2_000 if self.quick else 50_000

    @property
    def long_turns(self) -> int:
        """Of what takes minutes."""
        return 1 if self.quick else 3

    def sizes(self, axis: str) -> tuple[int, ...]:
        return growth.AXES[axis][:3] if self.quick else growth.AXES[axis]


def check_ourselves(data: Split) -> float:
    """Our two kinds of round must compute the same mean before either is timed; how far they are apart."""
    sums = clipped_sums(data)
    mean = np.mean(sums / np.array(data.sizes)[:, None, None], axis=0, keepdims=True)
    apart = difference(clipped_mean(data)[None], mean)
    assert apart < 1e-4, f"our own two kinds of round differ by {apart:.2g}"
    return apart


def reference(data: Split, effort: Effort) -> dict[str, Times]:
    """Both kinds of round, the products they contain, and the parts they are made of: all by turns."""
    rounds = {
        ONE: timed(round_of(one_theta(data), data)),
        EACH: timed(round_of(theta_per_client(data), data)),
        ONE_OF_TEN: one_of_ten(one_theta(data), data),
        ONE_XLA: timed(round_of(one_theta(data), data, fused=False)),
        EACH_XLA: timed(round_of(theta_per_client(data), data, fused=False)),
    }
    return by_turns(products(data) | wide(data) | rounds | parts(data), effort.turns)


def over_products(times: dict[str, Times]) -> dict[str, Line]:
    """Everything in units of a round's two matrix products, by whichever library is faster."""
    pair = (times[PRODUCTS_NUMPY], times[PRODUCTS_JAX])
    median, minimum = min(t.median for t in pair), min(t.minimum for t in pair)
    return {name: Line(name, Ratio(t.median / median, t.minimum / minimum)) for name, t in times.items()}


def reference_lines(times: dict[str, Times]) -> tuple[tuple[Line, ...], tuple[Line, ...], list[Target]]:
    """Rounds and parts over the products; and the two targets about them."""
    lines = over_products(times)
    apart = [PASS, NOISE, STEP]
    targets = [
        Target("Round, one θ, over its two products", "at most", 1.5, lines[ONE].ratio),
        Target("Round, one θ per client, over its two products", "at most", 2.5, lines[EACH].ratio),
    ]
    return tuple(v for n, v in lines.items() if n not in apart), tuple(lines[n] for n in apart), targets


def peers(data: Split, effort: Effort, tell: Tell) -> list[PeerLine]:
    """Every peer, checked against us and then timed by turns with a round of ours."""
    plan, sums, lines = one_theta(data), clipped_sums(data), []
    ours = round_of(plan, data)
    with tempfile.TemporaryDirectory() as folder:
        problem = Path(folder) / "problem.npz"
        write(data, plan.sum_std, problem)
        for peer in rivals.PEERS:
            tell(f"peer: {peer.name}")
            lines.append(peer_line(rivals.compare(peer, problem, sums, ours, effort.turns)))
            tell(f"  {lines[-1].reason or f'{lines[-1].ratio.median:.1f} x our time'}")  # type: ignore[union-attr]
    return lines


def peer_line(outcome: rivals.Outcome) -> PeerLine:
    """One row of the peers' table."""
    if outcome.theirs is None or outcome.ours is None:
        kind = "wrong" if outcome.wrong else "missing"
        return PeerLine(outcome.name, outcome.version, None, f"{kind}: {outcome.reason}")
    return PeerLine(outcome.name, outcome.version, Ratio.of(outcome.theirs, outcome.ours))


def peer_targets(lines: Sequence[PeerLine]) -> list[Target]:
    bounds = {rivals.NUMPY: 2.5, rivals.OPACUS: 10.0, rivals.JAX_PRIVACY: 10.0, rivals.FLOWER_ENGINE: 30.0}
    found = {line.name: line for line in lines}
    return [
        Target(f"{name}, over our round", "at least", bound, found[name].ratio, note=found[name].reason)
        if name in found
        else Target(f"{name}, over our round", "at least", bound, None, note="peers were left out of this run")
        for name, bound in bounds.items()
    ]


#: Clients that padding could hurt; each line's time is per record, over that of the reference problem.
PADDING = {
    "20 clients of {} to {} records (PathMNIST's split)": PATHMNIST,
    "1,000 clients of 50 records": Shape(clients=1_000, iid=True),
    "1 client of 1,000,000 records": Shape(records=1_000_000, clients=1, iid=True),
}


def padding(data: Split, effort: Effort, tell: Tell) -> list[Line]:
    """Time per record where clients are many and tiny, or one and huge, over the reference's."""
    shapes = dict(list(PADDING.items())[: 1 if effort.quick else None])
    lines = []
    for name, shape in shapes.items():
        other = make(shape)
        name = name.format(f"{min(other.sizes):,}", f"{max(other.sizes):,}")
        tell(f"padding: {name}")
        for kind, plan in ((ONE, one_theta), (EACH, theta_per_client)):
            pair = {"it": timed(round_of(plan(other), other)), "reference": timed(round_of(plan(data), data))}
            times = by_turns(pair, effort.turns, 2)
            ratio = Ratio.of(times["it"], times["reference"], len(data.dataset.y_train) / shape.records)
            lines.append(Line(f"{name}, {kind}", ratio))
        if len(other.sizes) >= MANY:
            lines.append(noise_line(data, other, effort))
    return lines


MANY = 1_000  # clients
NOISE_OF_MANY = "the noise alone of that round: 650 numbers for each of 1,000 clients"


def noise_line(data: Split, other: Split, effort: Effort) -> Line:
    """What every client's own noise costs, in the units of the table."""
    pair = {"it": noise_of(other), "reference": timed(round_of(theta_per_client(data), data))}
    times = by_turns(pair, effort.turns, 2)
    return Line(NOISE_OF_MANY, Ratio.of(times["it"], times["reference"]))


def growth_curves(data: Split, effort: Effort, tell: Tell) -> list[Curve]:
    """Time of a round against every size, over the reference round with one theta."""
    curves, reference = [], timed(round_of(one_theta(data), data))
    for axis in growth.AXES:
        points = {}
        for size in effort.sizes(axis):
            tell(f"growth: {size:,} {axis}")
            points[size] = growth.measure(axis, size, reference, max(2, effort.turns // 2))
        curves += growth.curves(axis, points)
    return curves


def server_steps(data: Split, effort: Effort, tell: Tell) -> tuple[list[StepLine], list[Curve], Target]:
    """SOFIM against Adam at every d, as lines, as curves, and as the target."""
    steps, reference = [], timed(round_of(one_theta(data), data))
    for d in effort.dimensions:
        tell(f"server step: {d:,} parameters")
        steps += server_step.measure(d, reference, effort.turns)
    ratios = server_step.against_adam(steps)
    lines = [StepLine(s.name, s.d, ratios[s.name, s.d], s.kept, s.scratch) for s in steps]
    curves = [
        Curve(
            "parameters",
            name,
            effort.dimensions,
            tuple(Ratio.of(s.times, s.reference).minimum for s in steps if s.name == name),
        )
        for name in server_step.OPTIMIZERS
    ]
    worst = max((line for line in lines if line.name != server_step.ADAM), key=lambda line: line.over_adam.median)
    note = f"at the worst d, {worst.d:,}, {worst.name}"
    return lines, curves, Target("Server step, SOFIM over optax.adam", "at most", 1.0, worst.over_adam, note=note)


def growth_target(curves: Sequence[Curve]) -> Target:
    """Linear or better: the steepest of all fitted curves; and what the steepest does at its end, in the note."""
    steepest = max(curves, key=lambda c: c.exponent)
    at_end = max(curves, key=lambda c: c.last_exponent)
    note = f"{steepest.axis}, {steepest.kind}; steepest end {at_end.last_exponent:.2f} ({at_end.axis}, {at_end.kind})"
    return Target("Growth: steepest exponent", "at most", 1.05, Ratio(*[steepest.exponent] * 2), "", note)


def in_fresh_processes(effort: Effort, tell: Tell) -> dict[str, dict[str, float]]:
    """What a cold start costs; the first run on a machine three times, since it is short."""
    found = {}
    for task in ("first run", "first run 2", "first run 3", "run", "sweep", "one-by-one", "calls", "grid", "million"):
        tell(f"fresh process: {task}")
        first = task.startswith("first")
        found[task] = fresh.measure("run" if first else task, effort.quick, first)
    return found


def fresh_targets(found: dict[str, dict[str, float]]) -> list[Target]:
    """Seconds, the sweep's ratio, and memory."""
    runs = Times(tuple(found[k]["seconds"] for k in ("first run", "first run 2", "first run 3")))
    sweep = found["sweep"]["seconds"] / found["one-by-one"]["seconds"]
    minutes = found["grid"]["seconds"] / 60
    peak = max(found, key=lambda task: found[task]["peak"])
    return [
        Target("70 rounds at 20 clients, compiling included", "at most", 2.0, Ratio(runs.median, runs.minimum), "s"),
        Target("Sweep of 24 settings x 3 seeds, over one by one", "at most", 0.5, Ratio(sweep, sweep), note=SWEEP_NOTE),
        Target("The paper's grid, 9 methods x 4 budgets x 3 seeds", "at most", 10.0, Ratio(minutes, minutes), "min"),
        Target("Peak memory of any of these", "at most", 2.0, Ratio(*[found[peak]["peak"]] * 2), "GB", f"the {peak}"),
    ]


SWEEP_NOTE = "see *Whole runs*"
