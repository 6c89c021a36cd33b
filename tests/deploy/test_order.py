"""One place for a job's fields: the app's run-config has exactly those, and an order comes back as it was written."""

import tomllib
from dataclasses import fields
from typing import Any

import pytest

from fedsofim.core.budget import NO_PRIVACY, WITHOUT
from fedsofim.deploy.order import Conduct, Order, from_config, to_config
from fedsofim.deploy.processes import APP
from fedsofim.errors import InputError


def test_the_app_lists_exactly_these_keys_with_their_defaults():
    """Flower takes only keys that the app's pyproject.toml lists."""
    listed = tomllib.loads((APP / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    ours = to_config(Order(), Conduct())
    assert listed == ours
    assert {k: type(v) for k, v in listed.items()} == {k: type(v) for k, v in ours.items()}
    assert len(ours) == len(fields(Order)) + len(fields(Conduct))


EVERYTHING = (
    Order(
        recipe="paper", method="ftrl", settings=(("lr", "0.5"), ("noise", "tree")), epsilon=0.25, delta=1e-6, rounds=7,
        clip=2.5, clients=4, min_clients=3, weights="size", trust="secure-sum", standardize=0.1, seed=9,
        model="mlp", model_settings=(("activation", "relu"), ("hidden", "8,8")),
        evaluate="private", evaluate_every=3, evaluate_share=0.1, unit="client", records_per_person=12,
    ),
    Conduct(test="digits", schema="s.toml", statements="/s", folder="/a job", resume=True,
            ask_first=False, retries=1, nodes="a,b", attempts=5, patience=1.5, timeout=2.5),
)  # fmt: skip


FROM_NODES = (Order(budgets="from-nodes"), Conduct())  # apart: not together with secure sums


@pytest.mark.parametrize("job", [(Order(), Conduct()), EVERYTHING, (Order(epsilon=WITHOUT), Conduct()), FROM_NODES])
def test_a_job_comes_back_as_it_was_written(job: tuple[Order, Conduct]):
    assert from_config(to_config(*job)) == job


def test_every_field_was_changed():
    """So the test above would miss none of them."""
    default, changed = to_config(Order(), Conduct()), to_config(*EVERYTHING) | {"budgets": FROM_NODES[0].budgets}
    assert not [key for key in default if default[key] == changed[key]]


def test_what_a_config_does_not_mention_has_its_default():
    assert from_config({}) == (Order(), Conduct())
    assert from_config({"rounds": 3, "ask-first": False}) == (Order(rounds=3), Conduct(ask_first=False))
    assert from_config({"epsilon": 2})[0].epsilon == 2.0  # a whole number is a number
    assert from_config({"clip": 2})[0].clip == 2.0


@pytest.mark.parametrize("key", ["method", "rounds", "clip", "weights"])
def test_what_is_left_to_the_recipe_is_written_as_nothing(key: str):
    """Flower's table has no None, and nought would be an order like any other."""
    assert to_config(Order(), Conduct())[key] == ""
    assert getattr(from_config({key: ""})[0], key) is None
    for other in ("epsilon", "clients", "seed"):
        with pytest.raises(InputError, match=other):
            from_config({other: ""})


WRONG = [
    ({"rounds": 2.5}, "rounds"), ({"rounds": "3"}, "rounds"), ({"rounds": True}, "rounds"), ({"clip": "ten"}, "clip"),
    ({"resume": "false"}, "resume"), ({"resume": 1}, "resume"), ({"method": 3}, "method"), ({"folder": 1}, "folder"),
    ({"epsilon": "0.5"}, "epsilon"), ({"epsilon": "none"}, "epsilon"), ({"ask_first": True}, "ask-first"),
    ({"attempt": 3}, "attempts"), ({"weights": "siez"}, "size"), ({"trust": "lokal"}, "local"),
    ({"settings": "lr"}, "lr"), ({"recipe": "atuo"}, "auto"), ({"recipe": 1}, "recipe"), ({"weights": 1}, "weights"),
    ({"evaluate": "yes"}, "private"), ({"evaluate-every": -1}, "evaluate-every"),
    ({"evaluate": "private", "evaluate-share": 1.0}, "share"),
]  # fmt: skip


@pytest.mark.parametrize("config, said", WRONG, ids=str)
def test_a_wrong_value_or_key_is_an_error(config: dict[str, Any], said: str):
    with pytest.raises(InputError, match=said):
        from_config(config)


def test_no_privacy_has_one_spelling():
    assert Order(epsilon=WITHOUT).budget is NO_PRIVACY
    assert to_config(Order(epsilon=WITHOUT), Conduct())["epsilon"] == "no-privacy"
    with pytest.raises(InputError, match="no-privacy"):
        _ = Order(epsilon=float("inf")).budget


@pytest.mark.parametrize("name", ["mine.py", "./mine.py", "/somewhere/mine.py", "~/mine.py"])
def test_a_method_file_cannot_be_ordered(name: str):
    for act in (lambda: Order(recipe="paper", method=name), lambda: from_config({"method": name})):
        with pytest.raises(InputError) as caught:
            act()
        for words in (name, "nodes run only what is installed", "entry point", "fedsofim.methods"):
            assert words in str(caught.value)
