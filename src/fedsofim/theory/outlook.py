"""`fedsofim plan`: what a run would be like, from sizes, shapes and a budget. No record is read, and none is needed.

Everything about privacy is the priced plan's own (core/plan.py); the rest are these public numbers:

* **Noise of a round**: σ·sqrt(d), the length of the noise on the averaged gradient of d numbers; in the momentum
  buffer sqrt((1-β)/(1+β)) of that is left (theory/buffer.py).
* **Gradient**: in units of the clip, what the recipe's steps expect (core/units.py, fixed on validation records):
  at the start Δ/sqrt(C), the classes being Δ = 0.4 to 0.8 clips apart; later `later` clips.
* **Rounds worth spending**: the bound behind the steps, D·sqrt(B²/T + d·σ_1²), σ_1 the noise if one round had all
  of the budget, falls with T only until noise is the limit: from T = B²/(0.1025·d·σ_1²) on, infinitely many
  rounds more would gain 5 % of it at most.
* **Accuracy**: what was measured at this loudness on datasets of the nearest shapes (cells.py).
* **Bytes**: a node's upload has the program's numbers, of 4 bytes, or of 8 where they are masked; it is sent the
  parameters.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import jax
import numpy as np

from fedsofim.core.budget import stated
from fedsofim.core.models import Model, softmax_head
from fedsofim.core.phase import Phase
from fedsofim.core.plan import Plan, Trust, make_plan
from fedsofim.core.preparation import units_of
from fedsofim.core.programs import upload_shapes
from fedsofim.core.summary import privacy_summary
from fedsofim.core.units import APART
from fedsofim.errors import InputError
from fedsofim.methods import make
from fedsofim.protection import Unit
from fedsofim.recipes import Choices, Situation, choose
from fedsofim.theory.buffer import noise_left
from fedsofim.theory.cells import Cell, Expectation, expectations, loudness
from fedsofim.theory.complexity import client_multiplications, server_multiplications

ENOUGH = 0.05  # what more rounds would have to gain, of the bound, to be worth it


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """One situation: the recipe's choices for it, the priced plan, and what to expect."""

    situation: Situation
    chosen: Choices
    plan: Plan
    expected: tuple[Expectation, ...]

    @property
    def d(self) -> int:
        """Parameters: what a round's upload holds."""
        return sum(leaf.size for leaf in jax.tree.leaves(upload_shapes(self.plan.program)))

    @property
    def noise(self) -> float:
        """The length of the noise on the average of a round."""
        return self.plan.noise_std * math.sqrt(self.d)

    @property
    def noise_in_buffer(self) -> float:
        return self.noise * math.sqrt(noise_left(float(self.chosen.settings.get("beta", 0.0))))

    @property
    def gradient_at_start(self) -> tuple[float, float]:
        """The least and the largest that is expected of the first average."""
        root = math.sqrt(self.situation.classes)
        return APART[0] / root * self.plan.clip, APART[1] / root * self.plan.clip

    @property
    def gradient_later(self) -> float:
        return units_of(self.plan.preparation, self.situation.classes).later * self.plan.clip

    @property
    def rounds_worth(self) -> float:
        """From here on noise, and not the number of rounds, is the limit; infinite without noise."""
        early = units_of(self.plan.preparation, self.situation.classes).early
        loud = loudness(self.situation)
        return (early / loud) ** 2 / ((1 + ENOUGH) ** 2 - 1) if loud > 0 else math.inf

    def bytes_of(self, phase: Phase) -> int:
        """What one client uploads in a phase. A masked second moment is sent as its half."""
        leaves = jax.tree.leaves(upload_shapes(self.plan.programs[phase]))
        if self.situation.trust == "local" or phase is Phase.SETUP:
            return 4 * sum(leaf.size for leaf in leaves)
        half = phase is Phase.MOMENTS
        return 8 * sum(_half(leaf) if half and leaf.ndim == 2 else leaf.size for leaf in leaves)

    def summary(self) -> dict[str, Any]:
        """As plain data: what `--json` prints."""
        s, low_high = self.situation, self.gradient_at_start
        worth = self.rounds_worth
        return {
            "trust": s.trust,
            "clients": len(s.sizes),
            "records": sum(s.sizes),
            **{k: v for k, v in privacy_summary(self.plan).items() if k not in ("trust", "note")},
            "parameters": self.d,
            "loudness": loudness(s),
            "noise_of_a_round": self.noise,
            "noise_in_the_buffer": self.noise_in_buffer,
            "gradient_at_start": list(low_high),
            "gradient_later": self.gradient_later,
            "noise_over_gradient_at_start": self.noise / low_high[1],
            "noise_over_gradient_later": self.noise_in_buffer / self.gradient_later,
            "rounds_until_noise_is_the_limit": worth if math.isfinite(worth) else None,
            "chosen": dict(self.chosen.why),
            "expected": expected_summary(self.expected),
            "bytes_up": self.bytes_of(Phase.ROUND),
            "bytes_down": 4 * self.d,
            "bytes_up_before": sum(self.bytes_of(p) for p in self.plan.programs if p is not Phase.ROUND),
            "client_multiplications": client_multiplications(max(s.sizes), self.d),
            "server_multiplications": server_multiplications(len(s.sizes), self.d),
        }


def _half(matrix: Any) -> int:
    return matrix.shape[0] * (matrix.shape[0] + 1) // 2


def expected_summary(expected: Sequence[Expectation]) -> dict[str, Any]:
    """The range over the nearest datasets, and each of them."""
    lost = [e.lost for e in expected if e.lost is not None]
    ends = [e.accuracy - e.spread for e in expected] + [e.accuracy + e.spread for e in expected]
    return {
        "accuracy": [min(ends), max(ends)] if ends else None,  # None: louder than anything measured
        "lost_to_noise": [min(lost), max(lost)] if lost else None,
        "measured": bool(expected) and all(e.measured for e in expected),
        "by_dataset": [
            {"dataset": e.dataset, "accuracy": round(e.accuracy, 2), "spread": round(e.spread, 2),
             "lost": None if e.lost is None else round(e.lost, 2), "measured": e.measured} for e in expected
        ],
    }  # fmt: skip


def outlook_of(
    situation: Situation, cells: Sequence[Cell], recipe: str = "auto", model: Model | None = None, unit: Unit = "record"
) -> Outlook:
    """What to expect of a situation. Shapes and sizes only. `model`: one that is not the linear one. `unit`: whom
    epsilon protects; sizes count these. Accuracy was measured of the linear model, where records are protected."""
    if not situation.budget.private:
        raise InputError("without privacy there is no noise to plan for; give an epsilon")
    chosen = choose(recipe, situation)
    plan = make_plan(
        make(chosen.method, dict(chosen.settings), situation.budget.epsilon),
        softmax_head(chosen.start) if model is None else model,
        sizes=situation.sizes,
        shape=situation.shape,
        classes=situation.classes,
        budget=situation.budget,
        rounds=chosen.rounds,
        clip=chosen.clip,
        trust=situation.trust,
        weights=chosen.weights,
        preparation=chosen.preparation,
        unit=unit,
        places=None if unit == "record" else 2,  # how many records of one count changes no price
    )
    expected = tuple(expectations(situation, cells)) if model is None and unit == "record" else ()
    return Outlook(situation=situation, chosen=chosen, plan=plan, expected=expected)


def alternatives(situation: Situation) -> dict[str, Situation]:
    """What else could be had, each one change away from what was asked."""
    b, sizes = situation.budget, situation.sizes
    trust: Trust = "secure-sum" if situation.trust == "local" else "local"
    return {
        f"as asked: {situation.trust}": situation,
        trust: replace(situation, trust=trust),
        "clients x 4": replace(situation, sizes=sizes * 4),
        "records x 4": replace(situation, sizes=tuple(4 * m for m in sizes)),
        "epsilon x 2": replace(situation, budget=replace(b, epsilon=2 * b.epsilon)),
        "epsilon / 2": replace(situation, budget=replace(b, epsilon=b.epsilon / 2)),
    }


@dataclass(frozen=True, kw_only=True)
class Planned:
    """The whole answer: both trust modes, and what one change would buy."""

    modes: tuple[Outlook, ...]
    changes: dict[str, Outlook]
    seconds: float | None  # of the largest client's two products, timed on made-up numbers; None: it is not the head
    ceiling: float | None  # accuracy without noise, if the asker knows it

    def summary(self) -> dict[str, Any]:
        asked = next(iter(self.changes.values()))
        s = asked.situation
        return {
            "epsilon_asked": stated(s.budget.epsilon),
            "delta": s.budget.delta,
            "model": asked.plan.model.name,
            "features": s.shape[0],
            "classes": s.classes,
            "smallest_client": min(s.sizes),
            "reads_records": False,
            "modes": [m.summary() for m in self.modes],
            "changes": {name: self._change(asked, o) for name, o in self.changes.items()},
            "seconds_of_products_a_round_here": self.seconds,
            "ceiling": self.ceiling,
        }

    def _change(self, asked: Outlook, other: Outlook) -> dict[str, Any]:
        expected = expected_summary(other.expected)
        lost = expected["lost_to_noise"]
        return {
            "noise_times": loudness(other.situation) / loudness(asked.situation),
            "epsilon": stated(other.plan.epsilon),
            "rounds": other.plan.rounds,
            "accuracy": expected["accuracy"],
            "lost_to_noise": lost,
            "measured": expected["measured"],
            "of_ceiling": None
            if self.ceiling is None or not lost
            else [self.ceiling - lost[1], self.ceiling - lost[0]],
        }


def planned(
    situation: Situation,
    cells: Sequence[Cell],
    ceiling: float | None = None,
    model: Model | None = None,
    unit: Unit = "record",
) -> Planned:
    """Everything `fedsofim plan` says. Whole clients can be protected under secure sum only."""
    if model is not None:
        situation = replace(situation, head=False, takes=model.takes)
    situation = replace(situation, trust="secure-sum") if unit == "client" else situation

    def outlook(of: Situation) -> Outlook:
        return outlook_of(of, cells, model=model, unit=unit)

    trusts = ("secure-sum",) if unit == "client" else get_args(Trust)
    modes = tuple(outlook(replace(situation, trust=t)) for t in trusts)
    others = {name: s for name, s in alternatives(situation).items() if s.trust in trusts}
    changes = {name: outlook(s) for name, s in others.items() if unit != "client" or name != "records x 4"}
    largest, width = max(situation.sizes), modes[0].plan.shape[0] + 1
    seconds = products_seconds(largest, width, situation.classes) if model is None else None
    return Planned(modes=modes, changes=changes, seconds=seconds, ceiling=ceiling)


_AT_MOST = 20_000  # records that are timed; more cost as much each


def products_seconds(records: int, width: int, classes: int) -> float:
    """How long X·θ and XᵀR take here, on made-up numbers of these shapes: the best of five."""
    some = min(records, _AT_MOST)
    random = np.random.default_rng(0)
    x, theta = (random.standard_normal(s, np.float32) for s in ((some, width), (width, classes)))
    best = math.inf
    for _ in range(5):
        began = time.perf_counter()
        _ = x.T @ (x @ theta)
        best = min(best, time.perf_counter() - began)
    return best * records / some
