"""`fedsofim theory` as a user types it."""

import math
from pathlib import Path

import pytest

KNOWN = ("theory", "--L", 1, "--mu", 1, "--clip", 1, "--rho", 100, "--eta", 5, "--gap", 0.5, "--clients", 4,
         "--records", 500, "--d", 30)  # fmt: skip


def test_the_answer_is_one_json_object_with_everything(asked):
    found = asked(*KNOWN, "--sigma-g", 10)
    assert set(found) == {
        "constants", "noise", "buffer", "preconditioner", "descent", "floors", "general_update", "momentum_form",
        "round", "conditions", "notes", "head",
    }  # fmt: skip
    assert found["noise"]["nu2"] == pytest.approx((10 / (4 * 500)) ** 2)
    assert found["buffer"]["M_bar2"] == pytest.approx(1 + 0.1 * 30 * found["noise"]["nu2"])
    assert found["descent"]["Gamma"] == pytest.approx(sum(found["descent"]["Gamma_parts"].values()))
    floors = found["floors"]
    assert set(floors) == {"stationarity", "strong_convexity", "polyak_lojasiewicz", "fedgd", "ours"}
    assert floors["strong_convexity"]["floor"] > floors["fedgd"]["floor"] > 0
    assert found["momentum_form"]["largest_step"] == pytest.approx(5 / 20)
    assert found["momentum_form"]["largest_drift"] == pytest.approx(70 * 5 / 20)
    assert all(c["holds"] for c in found["conditions"])
    assert found["head"] is None


def test_the_floor_is_what_the_theorem_says(asked):
    """By hand: Γ/(2μηc) from the printed parts."""
    found = asked(*KNOWN, "--sigma-g", 10, "--tau-1", 0.001, "--tau-2", 0.002)
    d, nu2, eta, rho = 30, found["noise"]["nu2"], 5, 100
    c = 1 / rho - 0.0015
    parts = (
        eta * (1 + 0.1 * d * nu2) / rho**2
        + eta * d * nu2 / (2 * 0.002 * rho**2)
        + eta**2 / (2 * rho**2) * (1 + d * nu2)
    )
    assert found["descent"]["c_grad"] == pytest.approx(c)
    assert found["floors"]["strong_convexity"]["floor"] == pytest.approx(parts / (2 * eta * c))
    best = asked(*KNOWN, "--sigma-g", 10)
    assert best["floors"]["strong_convexity"]["floor"] < found["floors"]["strong_convexity"]["floor"]


def test_any_private_update_and_a_pl_constant_of_its_own(asked):
    """With B = ζ_max and G_0 = C_g only the buffer's bound is another: no mean-zero noise is assumed of M."""
    found = asked(*KNOWN, "--sigma-g", 10, "--zeta-max", 0.1, "--B", 0.1, "--mu-pl", 0.25, "--g-max", 1)
    general, nu2 = found["general_update"], found["noise"]["nu2"]
    more = 5 * 0.9 * 30 * nu2 / 100**2  # η·G²/ρ²·(M̄² of any update - M̄²)
    with_taus = asked(*KNOWN, "--sigma-g", 10, "--zeta-max", 0.1, "--B", 0.1, "--g-max", 1,
                      "--tau-1", general["tau_1"], "--tau-2", general["tau_2"])  # fmt: skip
    assert general["Gamma_B"] == pytest.approx(with_taus["descent"]["Gamma"] + more)
    assert general["stationarity"] < general["stationarity_trivial"] and not general["vacuous"]
    floors = found["floors"]
    assert floors["polyak_lojasiewicz"]["floor"] == pytest.approx(4 * floors["strong_convexity"]["floor"])
    assert asked(*KNOWN, "--sigma-g", 10)["general_update"] is None


def test_a_vacuous_floor_is_called_vacuous(call, asked):
    small = ("theory", "--L", 1, "--mu", 1, "--clip", 1, "--rho", 0.9, "--eta", 0.1, "--epsilon", 5)
    found = asked(*small)
    assert found["floors"]["strong_convexity"]["vacuous"] and found["floors"]["stationarity"]["vacuous"]
    assert not next(c for c in found["conditions"] if c["condition"] == "rho > M_bar²")["holds"]
    assert "vacuous" in (said := call(*small).stdout) and "fails: rho > M_bar²" in said
    assert "vacuous" not in call(*KNOWN, "--sigma-g", 10).stdout.split("the momentum form")[0]


def test_epsilon_and_its_multiplier_say_the_same(asked):
    by_epsilon = asked(*KNOWN, "--epsilon", 1)
    assert asked(*KNOWN, "--sigma-g", by_epsilon["constants"]["sigma_g"])["noise"] == by_epsilon["noise"]


def test_a_radius_is_public_and_records_are_not(call, asked):
    public = asked("theory", "--radius", 6.6, "--clip", 3, "--epsilon", 1)["head"]
    assert public["private"] and public["L"] == pytest.approx(6.6**2 / 2 + 1e-3)
    read = (
        "theory",
        "--constants",
        "records",
        "--dataset",
        "digits",
        "--epsilon",
        1,
        "--clients",
        3,
        "--partition",
        "iid",
    )
    assert asked(*read)["head"]["private"] is False
    assert "NOT PRIVATE" in call(*read).stdout


@pytest.mark.slow
def test_a_released_moment_bounds_what_the_records_have(asked):
    where = ("--dataset", "digits", "--epsilon", 5, "--clients", 2, "--partition", "iid")
    found = asked("theory", "--constants", "released", *where)
    assert found["head"]["private"] and "released" in found["head"]["how"]
    assert 0 < found["head"]["L"] <= 1.25 / 2 + 1e-3 and math.isfinite(found["head"]["L"])


def test_the_picture_is_drawn(call, tmp_path: Path):
    assert call(*KNOWN, "--epsilon", 1, "--picture", tmp_path / "floors.png").returncode == 0
    assert (tmp_path / "floors.png").stat().st_size > 20_000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--epsilon", 1), "give --L with the constants"),
        (("--L", 1), "give either --epsilon or --sigma-g"),
        (("--L", 1, "--epsilon", 1, "--sigma-g", 2), "give either --epsilon or --sigma-g"),
        (("--L", -1, "--epsilon", 1), "L is -1.0; expected a finite number above 0"),
        (("--L", 1, "--epsilon", 1, "--beta", 1), "expected 0 <= beta < 1"),
        (("--L", 1, "--epsilon", 1, "--tau-1", 1), "give both --tau-1 and --tau-2"),
        (("--L", 1, "--epsilon", 1, "--tau-1", 0, "--tau-2", 1), "expected numbers above 0"),
        (("--L", 1, "--epsilon", 1, "--delta-m", 1), "expected a probability"),
        (("--L", 1, "--epsilon", 1, "--B", -1), "B is -1.0"),
        (("--L", 1, "--epsilon", 1, "--sizes", "1,x"), "expected whole numbers with commas"),
        (("--L", 1, "--epsilon", 1, "--sizes", "10,0"), "at least one record each"),
        (("--constants", "guessed", "--epsilon", 1), "no source of constants 'guessed'"),
        (("--constants", "radius", "--epsilon", 1), "--constants radius needs --radius"),
        (("--radius", 1, "--ridge", 0, "--epsilon", 1), "not strongly convex"),
        (("--constants", "released", "--dataset", "digits", "--epsilon", "no-privacy"), "is no release"),
    ],
)
def test_what_is_wrong_is_said_in_words(call, options, message: str):
    done = call("theory", *options)
    assert done.returncode == 2 and message in done.stderr
