"""Numbers on pages that nobody measured: they follow from the mathematics or from the code, which are asked here.

And sentences that count what a kept table has, where no comment (scripts/quoted.py) could say how.
"""

import csv
import math
import re
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from fedsofim.core.banded import Banded
from fedsofim.core.budget import Budget
from fedsofim.core.gaussian import epsilon_of
from fedsofim.core.mechanisms import Tree, tree_levels
from fedsofim.core.preparation import Centred, ColumnScales, Whitened
from fedsofim.core.selection import EveryTrial, NegativeBinomial, Way, mu_of_trials, ways
from fedsofim.core.units import AS_THEY_COME
from fedsofim.recipes import Situation, auto, choose

ROOT = Path(__file__).resolve().parents[2]
DELTA = 1e-5


def page(name: str) -> str:
    return " ".join(text(name).split())


def text(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


def kept(file: str) -> list[dict[str, str]]:
    with (ROOT / "docs" / "results" / file).open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def table(name: str, head: str) -> list[list[str]]:
    """The rows below a table's first line, cell by cell."""
    _, found, rest = text(name).partition(f"{head}\n")
    assert found, f"docs/{name}.md has no table {head}"
    lines = rest.partition("\n\n")[0].splitlines()[1:]
    return [[cell.strip().strip("*") for cell in line.strip("|").split(" | ")] for line in lines]


# --- docs/private-tuning.md ---------------------------------------------------------------------------------


def part_of_mu(way: Way, epsilon: float) -> float:
    """What a trial may cost, of what a single one might."""
    budget = Budget(epsilon, DELTA)
    return mu_of_trials(way, budget) / mu_of_trials(EveryTrial(1), budget)


def drawn(settings: int, epsilon: float) -> str:
    """The best of the random numbers, as the page has it."""
    part, way = max((part_of_mu(w, epsilon), str(w)) for w in ways(settings) if not isinstance(w, EveryTrial))
    return f"{100 * part:.1f}% ({'Poisson' if 'Poisson' in way else 'logarithmic'})"


HEAD_OF_TRIALS = "| settings | ε = 1, composed | ε = 1, random number | ε = 5, composed | ε = 5, random number |"


def test_what_is_left_for_a_trial():
    rows = table("private-tuning", HEAD_OF_TRIALS)
    assert len(rows) == 5
    for settings, *cells in rows:
        n = int(settings)
        composed = f"{100 * part_of_mu(EveryTrial(n), 1.0):.1f}%"
        assert cells == [composed, drawn(n, 1.0), composed, drawn(n, 5.0)]


def test_what_is_said_of_eight_trials():
    random, way = np.random.default_rng(0), NegativeBinomial(8.0)
    one = np.mean([way.draw(random) == 1 for _ in range(20_000)])
    assert "with 8 in the mean it is 1 in three of ten searches" in page("private-tuning") and 0.25 < one < 0.35
    most = max(part_of_mu(way, epsilon) for way in ways(8) for epsilon in (2.0, 5.0))
    assert "each trial has 62 % of the mu or less" in page("private-tuning") and round(100 * most) == 62


# --- docs/protection.md -------------------------------------------------------------------------------------

ROUNDS = 80


def of_all_trees(tree: Tree, gap: int) -> float:
    """Mean noise variance of the running sums, each group with a tree of its own, over that of independent noise."""

    def variance(rounds: int) -> float:  # after so many of a tree's own rounds, from what is the mean over them
        upto = [tree.spread(m) * m * (m + 1) / 2 if m else 0.0 for m in (rounds, rounds - 1)]
        return upto[0] - upto[1]

    asked = ((m + gap - 1 - g) // gap for m, g in product(range(1, ROUNDS + 1), range(gap)))
    return sum(variance(n) for n in asked if n) / (ROUNDS * (ROUNDS + 1) / 2)


def size(spread: float, cost: float, gap: int) -> float:
    """Of the noise, in units of all clients' in every round: a round has a gap's part of the records."""
    return gap * math.sqrt(spread * cost / ROUNDS)


def test_noise_for_known_gaps():
    rows = table("protection", "| clients in a round | independent | tree (subtree estimates) | banded |")
    assert [row[0] for row in rows] == ["all of 20", "5 (G = 4)", "2 (G = 10)"]
    for gap, (_, *cells) in zip((1, 4, 10), rows, strict=True):
        times, tree, banded = ROUNDS // gap, Tree(honaker=True), Banded(ROUNDS, gap)
        independent = size(1.0, times, gap)
        assert cells == [
            f"{independent:.2f}",
            f"{size(of_all_trees(tree, gap), tree.cost(times), gap):.2f}",
            f"{size(banded.spread(ROUNDS), banded.cost(times), gap):.2f}",
        ]
        for restart in (2, 4):  # trees do not pay with these either
            tree = Tree(restart, honaker=True)
            assert size(of_all_trees(tree, gap), tree.cost(times), gap) > independent


def test_what_a_run_for_records_says_of_a_person_of_ten():
    said = re.search(r"epsilon ([\d.]+) in place of 1, and ([\d.]+) in place of 5", page("protection"))
    assert said
    for shown, epsilon in zip(said.groups(), (1.0, 5.0), strict=True):
        assert float(f"{epsilon_of(10 * Budget(epsilon, DELTA).mu, DELTA):.3g}") == float(shown)
    assert f"epsilon = {epsilon_of(5 * Budget(1.0, DELTA).mu, DELTA):.6g} at delta" in page("protection")


# --- docs/methods.md ----------------------------------------------------------------------------------------

CHARGED = {
    "70": 70,
    "77.78": 70 / (1 - 0.1),
    "350": 5 * 70,
    "490": 7 * 70,
    "679": Tree(restart=10).cost(70),
    "6139": Tree().cost(70),
    "8162": Tree(honaker=True).cost(70),
}


def test_multipliers_of_all_numbers_of_releases():
    rows = table("methods", "| unit releases | for example | eps 0.5 | eps 1 | eps 5 | eps 10 |")
    assert [row[0] for row in rows] == list(CHARGED)
    for charged, _, *cells in rows:
        mus = [Budget(epsilon, DELTA).mu for epsilon in (0.5, 1.0, 5.0, 10.0)]
        assert [float(c) for c in cells] == pytest.approx(
            [math.sqrt(20) * 2 * math.sqrt(CHARGED[charged]) / mu for mu in mus], abs=0.006
        )


def test_what_trees_cost():
    methods = page("methods")
    assert f"noise is {math.sqrt(Tree().cost(70) / 70):.1f} times that of independent noise" in methods
    assert f"noise {math.sqrt(Tree().cost(70) / tree_levels(70)):.0f} times smaller (√(6139/8))" in methods
    spent = [epsilon_of(Budget(e, DELTA).mu * math.sqrt(6139 / 8), DELTA) for e in (0.5, 1.0, 5.0, 10.0)]
    assert "then {:.0f}, {:.0f}, {:.0f} and {:.0f} are spent".format(*spent) in methods


def test_the_published_rows_that_are_fedgds():
    for data in ("cifar10", "pathmnist"):
        rows = kept(f"paper-{data}-noniid/tables/published-{data}_resnet20-dirichlet-0.5.csv")
        fc, gd = (
            np.array([float(r["published"].split()[0]) for r in rows if r["ε"] == "10" and r["method"] == name])
            for name in ("DP-FedFC *", "DP-FedGD")
        )
        assert len(fc) == 7 and np.max(np.abs(fc - gd)) < 0.25
    assert "within a quarter of a point at every round on both datasets" in page("methods")


def test_the_units_of_automatic_steps():
    assert (AS_THEY_COME.reach, 1 / AS_THEY_COME.early, 1 / AS_THEY_COME.later) == (80, 4, 10)
    assert "D = 80/c and B = c/4 (and c/10 for the mean gradient" in page("methods")


# --- docs/privacy.md ----------------------------------------------------------------------------------------


def test_how_often_the_attacker_is_right_at_epsilon_1():
    right = norm.cdf(Budget(1.0, DELTA).mu / 2)
    assert f"he is right in {100 * right:.0f} of 100 tries" in page("privacy")


def test_where_the_simulators_noise_ends():
    """JAX makes a normal number of a float between -1 and 1, of which the largest is 1 - 2^-24."""
    assert f"end at {-norm.ppf(2.0**-25):.1f} sigma" in page("privacy")


# --- docs/recipe.md -----------------------------------------------------------------------------------------


def recommended(**situation: Any) -> Any:
    return choose("auto", Situation(**{"budget": Budget(1.0), "shape": (64,), "classes": 10, **situation}))


def test_the_constants_of_the_recipe():
    recipe, (usual, quiet, loud) = page("recipe"), auto.ROUNDS
    assert f"{usual} rounds ({quiet} where there is next to no noise, {loud} where there is so much that" in recipe
    assert f"Clip {auto.CLIP:g} (records are about 5 long)" in recipe
    assert f"With fewer than {auto.FEW} features" in recipe and "damped by twice its known noise" in recipe
    assert auto.DAMPING == 2
    assert f"below {auto.SHARP:g} of the trace" in recipe and f"known to {auto.KNOWN:g} bits" in recipe
    asked = product((60, 3000, 10**6), (0.1, 1, 10))
    found = [recommended(sizes=(n,) * 20, budget=Budget(epsilon)) for n, epsilon in asked]
    assert {choices.rounds for choices in found} == {usual, quiet, loud}
    assert "rho a hundredth of the clip squared and momentum 0.8" in recipe
    assert all(c.settings["rho"] == 0.01 * c.clip**2 and c.settings["beta"] == 0.8 for c in found)


def test_the_shares_of_the_recipes_preparation():
    recipe, shares = page("recipe"), {ColumnScales: set(), Centred: set(), Whitened: set()}
    for n, features, epsilon in product((60, 3000, 10**5, 10**7), (4, 64, 500), (0.5, 1, 10)):
        for step in recommended(sizes=(n,) * 20, shape=(features,), budget=Budget(epsilon)).preparation:
            if type(step) in shares:
                shares[type(step)].add(round(100 * step.share, 1))
    scales, centred, whitened = shares.values()
    assert f"(`ColumnScales`, {min(scales):g} to {max(scales):g} % of mu²)" in recipe
    assert f"(`Centred`, {min(centred):g} to {max(centred):g} % of mu²)" in recipe
    assert whitened == {10.0} and "(`Whitened`, 10 %)" in recipe


@pytest.mark.parametrize("data", ["cifar10", "pathmnist"])
def test_round_20_is_above_round_70_of_the_best_of_nine(data: str):
    where = f"tables/{{}}-{data}_resnet20-dirichlet-0.5.csv"
    recipe = kept(f"recipe-{data}-local/{where.format('accuracy')}")
    nine = kept(f"paper-{data}-noniid/{where.format('published-final')}")
    mine = {r["ε"]: float(r["round 20"].split()[0]) for r in recipe if r["method"] == "recipe"}
    assert len(mine) == 4 and "Round 20 of the recipe is above round 70 of the best of nine" in page("recipe")
    assert all(float(r["published"].split()[0]) < mine[r["ε"]] for r in nine)


def test_what_is_said_of_the_regret_table():
    recipe, rows = page("recipe"), kept("recipe-regret/cells.csv")
    near = [row for row in rows if float(row["regret"]) <= 1]
    assert f"is behind by at most 1 point in {len(near)} of {len(rows)} cells" in recipe and len(rows) - len(near) == 3
    assert "The best is always in the recipe's preparation" in recipe
    assert all(row["best"].endswith("(auto)") for row in rows)


def test_the_best_factor_of_the_steps_is_within_2_wherever_it_matters():
    """Where the factors from a half to 2 are apart by as much as seeds differ."""
    _, _, *lines = text("results/recipe-ablation/steps").splitlines()
    cells = [line.strip("| ").split(" | ") for line in lines]
    for name, *means, best, lost in cells:
        matters = max(map(float, means)) - min(map(float, means)) > 0.5
        assert 0.5 <= float(best) <= 2 or (not matters and float(lost) < 0.1), name


# --- docs/budgets.md ----------------------------------------------------------------------------------------


def test_how_much_strict_clients_count():
    louder = Budget(5.0, DELTA).mu / Budget(0.1, DELTA).mu
    rows = kept("unequal-budgets/tables/partition-fashion-dirichlet-0.5.csv")
    sizes = np.array([int(row["total"]) for row in rows if row["client"].isdigit()])
    weights = (sizes / np.where(np.arange(20) < 10, louder, 1)) ** 2  # quiet ones: core/weights.py
    counted = 100 * weights[:10].sum() / weights.sum()
    assert f"its noise, {louder:.0f} times the others'," in page("budgets")
    assert f"the ten strict ones together {counted:.2f} % of the average" in page("budgets")
