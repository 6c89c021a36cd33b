"""Noise whose seed is known can be taken off: so without a seed nobody has one, and with one a model's card says so."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedsofim as fs
from commands import run_here
from fedsofim.experiments import private_tuning
from fedsofim.experiments.grid import Entry, Experiment, Partition
from fedsofim.experiments.private_tuning import planned_search, search_privately
from fedsofim.experiments.tuning import Search
from fedsofim.simulation import simulator, training
from toy import make_toy, write_blobs

SAID = "Not protected from whoever knows or guesses the seed of the noise"
HOW = {"recipe": "paper", "rounds": 1, "preparation": ()}


@pytest.fixture(autouse=True)
def noise_of_the_machines_entropy(monkeypatch: pytest.MonkeyPatch):
    """As users have it; elsewhere in the tests noise repeats (conftest.py)."""
    monkeypatch.setattr(training, "a_seed_nobody_knows", simulator.a_seed_nobody_knows)


def unnoised(std: float) -> fs.Method:
    """An attacker's: the sum less the noise that the engine draws with seed 0, which its program draws again."""

    def client(door, params, state, memory):
        found = door.sum(lambda x, y: x[:3], clip=1.0)
        key = jax.random.fold_in(jax.random.fold_in(jax.random.split(jax.random.key(0))[1], 0), 0)
        return found - state * jax.random.normal(jax.random.fold_in(key, door.round), (3,), jnp.float32), memory

    return fs.Method(
        "unnoised", client, lambda mean, state, params, facts: (mean, state), init=lambda p: jnp.array(std)
    )


def uploaded(**seed: int) -> tuple[np.ndarray, float]:
    """What such a client uploads, and the noise that is in it by its price."""
    split = make_toy((200,))
    model = fs.Model(
        lambda k, s, c: jnp.zeros(3, jnp.float32), lambda p, x, y: jnp.sum(p) * 0, lambda p, x: jnp.zeros((len(x), 3))
    )
    std = fs.train(split, unnoised(0.0), fs.Budget(0.1), model=model, seed=0, **HOW).plan.sum_std
    run = fs.train(split, unnoised(std), fs.Budget(0.1), model=model, **seed, **HOW)
    return np.asarray(run.params), std


def records_sum() -> np.ndarray:
    x = make_toy((200,)).dataset.x_train[:, :3].astype(float)
    return (x * np.minimum(1, 1 / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-9))).sum(0)


def test_a_program_cannot_take_off_the_noise_of_a_run_without_a_seed():
    """With the seed that it guesses it can, which is why the guess must be wrong."""
    with jax.enable_x64(False):
        found, std = uploaded(seed=0)
        assert np.abs(found - records_sum()).max() < 1e-2 * std
        found, std = uploaded()
    assert np.abs(found - records_sum()).max() > 1e-2 * std


def test_two_runs_without_a_seed_have_noise_of_their_own():
    split = make_toy()
    one, other = (fs.train(split, fs.fedgd(), fs.Budget(1.0), rounds=1, recipe="paper") for _ in range(2))
    assert one.seed is other.seed is None
    assert not np.array_equal(one.params, other.params)


@pytest.mark.parametrize("wide", [False, True])
def test_all_64_bits_of_a_seed_count(wide: bool):
    with jax.enable_x64(wide):
        found = [np.asarray(jax.random.key_data(simulator.keys(s)[1])).tolist() for s in (3, 2**40 + 3, -1, 2**32 - 1)]
    assert len(set(map(tuple, found))) == 4


def test_a_seed_nobody_knows_is_of_64_bits(monkeypatch: pytest.MonkeyPatch):
    asked = []
    monkeypatch.setattr(simulator.secrets, "randbits", lambda bits: asked.append(bits) or 0)
    assert simulator.a_seed_nobody_knows() == -(2**63) and asked == [64]


def test_a_models_folder_never_tells_a_seed_and_its_card_says_what_one_costs(tmp_path: Path):
    split = make_toy()
    for name, seed in {"entropy": None, "seeded": 5}.items():
        run = fs.train(split, fs.fedgd(), fs.Budget(1.0), rounds=1, recipe="paper", seed=seed)
        run.save(tmp_path / name)
        facts = json.loads((tmp_path / name / "model.json").read_text())
        assert "seed" not in json.dumps(facts["training"]).replace("seeded", "")
        assert (SAID in fs.load_model(tmp_path / name).card) == (seed is not None)
        assert json.loads((tmp_path / name / "result.json").read_text())["seed"] == seed
    free = fs.train(split, fs.fedgd(), fs.NO_PRIVACY, rounds=1, recipe="paper", seed=5)
    assert SAID not in free.model.card  # nothing is promised anyway


def test_the_command_draws_its_own_noise_and_repeats_with_a_seed(tmp_path: Path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = (
        "run --dataset digits --clients 2 --partition iid --method fedgd --rounds 1 --recipe paper --epsilon 1 --json"
    )

    def result(*more: str) -> dict:
        return json.loads(run_here(capsys, monkeypatch, *line.split(), *more).stdout)

    fresh, again = result(), result("--seed", "3")
    assert fresh["seed"] is None and again["seed"] == 3
    assert again["accuracy"] == result("--seed", "3")["accuracy"]


def test_a_private_search_without_a_seed_draws_noise_and_number_from_entropy(tmp_path: Path, monkeypatch):
    write_blobs(tmp_path / "toy.npz")
    experiment = Experiment(name="e", datasets=("toy.npz",), entries=(Entry("A", "fedgd"),), epsilons=(5.0,),
                            partitions=(Partition("iid", 3),))  # fmt: skip
    drawn: list[int] = []
    monkeypatch.setattr(private_tuning, "a_seed_nobody_knows", lambda: drawn.append(7) or 7)
    generators: list[object] = []
    whole = np.random.default_rng
    monkeypatch.setattr(np.random, "default_rng", lambda of=None: generators.append(of) or whole(of))
    search = Search("grid", 2, None, 0.2)
    job = planned_search(experiment, search, {"A": {"lr": [0.1, 0.3]}}, 2)
    search_privately(job, search, tmp_path)
    assert job.seed is None and drawn
    assert [of for of in generators if of is not None and of != 0] == []
