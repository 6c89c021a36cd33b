"""The recipe for models that are not linear: what it may do to their records, and how far they go."""

from dataclasses import replace

import pytest

import fedsofim as fs
from fedsofim.core.door import Facts
from fedsofim.core.preparation import Centred, UnitNorm, units_of, width_of
from fedsofim.core.units import prepared_units
from fedsofim.methods._steps import gradient_step
from fedsofim.recipes import Situation, choose
from fedsofim.simulation.training import choices_for
from toy import make_toy

QUIET = Situation(budget=fs.Budget(5.0), sizes=(3000,) * 20, shape=(80,), classes=10, trust="secure-sum")
LOUD = replace(QUIET, sizes=(300,) * 4)


def network(situation: Situation, takes: str = "any features") -> Situation:
    return replace(situation, head=False, takes=takes)


def test_a_network_of_any_width_is_prepared_as_a_head_is():
    assert choose("auto", network(QUIET)).preparation == choose("auto", QUIET).preparation != ()


def test_a_network_runs_longer_where_it_is_quiet():
    assert [choose("auto", network(s)).rounds for s in (QUIET, LOUD)] == [100, 40]


def test_what_takes_as_many_features_has_each_in_its_place():
    steps = choose("auto", network(QUIET, "as many features")).preparation
    assert [type(step) for step in steps] == [UnitNorm, Centred] and width_of(steps, 80) == 80


@pytest.mark.parametrize(("situation", "lr"), [(QUIET, 0.6), (LOUD, 0.3)])
def test_what_may_be_trained_already_is_given_records_as_they_are(situation, lr):
    chosen = choose("auto", network(situation, "records as they are"))
    assert chosen.preparation == () and chosen.clip == 1.0 and chosen.settings["lr"] == lr
    assert "tried on digits only" in dict(chosen.why)["step"]


def test_the_recipe_is_told_by_the_model_what_it_takes():
    split = make_toy()
    kinds = {None: "head", fs.softmax_head(): "head", fs.mlp(): "mlp", fs.cnn(): "cnn"}
    found = {
        name: choices_for(split, fs.Budget(5.0), recipe="auto", trust="local", model=model)
        for model, name in kinds.items()
    }
    assert "start" in dict(found["head"].why) and "start" not in dict(found["mlp"].why)
    assert found["mlp"].preparation == found["head"].preparation
    assert [type(step) for step in found["cnn"].preparation] == [UnitNorm, Centred]


def test_a_network_goes_further_than_a_head_where_it_is_quiet_and_as_far_where_it_is_loud():
    def step(noise: float, linear: bool) -> float:
        units = units_of((UnitNorm(), Centred(0.1)), 10, linear=linear)
        return float(gradient_step(Facts(rounds=10, clients=5, clip=3.0, noise_std=noise, units=units), d=10_000))

    assert step(1e-4, linear=False) == pytest.approx(step(1e-4, linear=True) * 4 / 1.5, rel=1e-5)
    assert step(0.03, linear=False) == pytest.approx(step(0.03, linear=True), rel=1e-5)  # a noise of one clip
    assert prepared_units(10) == prepared_units(10, linear=True) != prepared_units(10, linear=False)
