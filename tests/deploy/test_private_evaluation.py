"""Right answers counted at the nodes: charged, within the cap, with the noise that is stated; near the truth."""

import math
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from fedsofim.core.budget import WITHOUT
from fedsofim.core.evaluation import CLIP, LABEL, Evaluation, Measured
from fedsofim.core.models import softmax_head
from fedsofim.core.phase import Phase
from fedsofim.deploy.checkpoint import restore, save
from fedsofim.deploy.job_state import JobState
from fedsofim.deploy.lines import epsilon_of_lines
from fedsofim.deploy.node import answer, consider
from fedsofim.deploy.order import Order
from fedsofim.deploy.policy import Policy, read_policy
from fedsofim.deploy.server import step
from fedsofim.deploy.trained_job import trained_of_job
from fedsofim.deploy.uploads import faults
from fedsofim.errors import InputError, Refused
from nodes import REHEARSAL, SMALL, ask_all, charges, finish, make_nodes, policy_toml, start, with_terms

PAPER = Order(recipe="paper", method="fedgd", rounds=2, evaluate="private")


def truth(now: JobState, records: list[tuple[np.ndarray, np.ndarray]]) -> float:
    """Percent of all these records that the model is right on."""
    right = [now.predict(x) == y for x, y in records]
    return 100 * float(np.concatenate(right).mean())


def parts() -> list[tuple[np.ndarray, np.ndarray]]:
    data = SMALL.dataset
    return [(data.x_train[p], data.y_train[p]) for p in SMALL.parts]


def holding_out(nodes: list[Policy], sizes: tuple[int, ...]) -> tuple[list[Policy], list]:
    """The same nodes with held-out records of their own."""
    random, out, held = np.random.default_rng(3), [], []
    for policy, size in zip(nodes, sizes, strict=True):
        x, y = random.normal(size=(size, 3)).astype(np.float32), random.integers(0, 3, size)
        np.savez(policy.data.parent / "test.npz", x=x, y=y)
        text = (policy.data.parent / "policy.toml").read_text().replace("ledger =", 'test = "test.npz"\nledger =')
        (policy.data.parent / "policy.toml").write_text(text)
        out.append(read_policy(policy.data.parent / "policy.toml"))
        held.append((x, y))
    return out, held


def test_without_noise_the_count_is_the_truth(tmp_path: Path):
    """To the last record, on held-out ones: so nothing was clipped, and every record counted once."""
    nodes, held = holding_out(make_nodes(tmp_path, **REHEARSAL), (5, 9, 30))
    now = finish(nodes, start(nodes, replace(PAPER, epsilon=WITHOUT)))
    (found,) = now.measured
    assert found.accuracy == pytest.approx(truth(now, held), abs=1e-4)
    assert (found.error, found.records, found.held_out, found.after) == (0.0, 44, True, 2)


def test_without_held_out_records_it_counts_those_of_the_training_and_says_so(tmp_path: Path):
    nodes = make_nodes(tmp_path, **REHEARSAL)
    now = finish(nodes, start(nodes, replace(PAPER, epsilon=WITHOUT, rounds=5, evaluate_every=2)))
    assert [m.after for m in now.measured] == [2, 4, 5]
    assert now.measured[-1].accuracy == pytest.approx(truth(now, parts()), abs=1e-4)
    assert not now.measured[-1].held_out and "which it was trained on" in str(now.measured[-1])


def test_every_count_is_charged_and_the_budget_covers_it(tmp_path: Path):
    nodes = make_nodes(tmp_path)
    now = finish(nodes, start(nodes, replace(PAPER, evaluate_every=1, evaluate_share=0.2)))
    lines = [line for _, line in nodes[0].account.entries()]
    counts = [line for line in lines if line.label == LABEL]
    assert len(counts) == 2 and len(lines) == 4
    assert all((line.clip, line.ratio, line.coordinates) == (CLIP, 2.0, 1) for line in counts)
    whole = epsilon_of_lines(lines, 1e-5)
    assert whole == pytest.approx(1.0, rel=1e-9)  # the whole budget
    part = sum((line.ratio / line.multiplier) ** 2 for line in counts)
    assert part == pytest.approx(0.2 * sum(line.weight * (line.ratio / line.multiplier) ** 2 for line in lines))
    assert now.plan.epsilon <= 1.0 and Phase.EVALUATION in now.plan.programs
    with pytest.raises(Refused, match="cap"):
        answer(nodes[0], start(nodes, PAPER).request())


def test_a_count_over_the_cap_is_refused_before_anything_is_spent(tmp_path: Path):
    """A job whose rounds alone would fit."""
    nodes = make_nodes(tmp_path)
    plain, counting = (start(nodes, replace(PAPER, evaluate=e)) for e in ("", "private"))
    consider(nodes[0], plain.job)
    cheap = replace(counting.job, stds={**counting.job.stds, Phase.ROUND: plain.job.stds[Phase.ROUND]})
    with pytest.raises(Refused, match="cap"):
        consider(nodes[0], cheap)
    assert charges(nodes[0]) == 0


def test_a_count_with_too_little_noise_is_refused(tmp_path: Path):
    nodes = make_nodes(tmp_path, smallest_multiplier=1.0)
    now = start(nodes, PAPER)
    thin = replace(now.job, stds={**now.job.stds, Phase.EVALUATION: [0.9 * CLIP]})
    with pytest.raises(Refused, match=r"'right answers' has noise multiplier 0\.9"):
        consider(nodes[0], thin)


def at_evaluation(nodes: list[Policy], order: Order) -> JobState:
    now = start(nodes, order)
    while now.phase is not Phase.EVALUATION:
        now = step(now, ask_all(nodes, now))
    return now


def test_the_noise_has_the_stated_std_and_centres_on_the_truth(tmp_path: Path):
    """100 counts of the same model, each with noise of its own; the same question again is the same bits."""
    nodes = make_nodes(tmp_path)
    now = at_evaluation(nodes[:1], replace(PAPER, clients=1, rounds=100, evaluate_every=1))
    again = [answer(nodes[0], now.request())["upload0"][0] for _ in range(2)]
    assert again[0] == again[1]
    counts = np.array([float(answer(nodes[0], now.request()._replace(round=i))["upload0"][0]) for i in range(100)])
    size, std = len(parts()[0][1]), now.job.stds[Phase.EVALUATION][0]
    assert now.plan.mu is not None
    assert std == pytest.approx(2 * CLIP * math.sqrt(100 / 0.05) / now.plan.mu, rel=1e-6)
    accuracy = truth(now, parts()[:1]) / 100
    assert abs(counts.mean() - (accuracy - 0.5)) < 5 * std / size / math.sqrt(100)
    assert 0.65 < counts.std() / (std / size) < 1.4  # 100 draws: 7 % of standard error
    found = step(now, {"n0": answer(nodes[0], now.request())}).measured[-1]
    assert found.error == pytest.approx(100 * std / size)


def test_the_accuracy_is_near_the_true_one_of_prepared_records(tmp_path: Path):
    nodes, held = holding_out(make_nodes(tmp_path, epsilon=200.0), (60, 80, 40))
    now = finish(nodes, start(nodes, replace(PAPER, epsilon=200.0, standardize=0.2, evaluate_share=0.3)))
    (found,) = now.measured
    assert found.error == pytest.approx(100 * now.job.stds[Phase.EVALUATION][0] * math.sqrt(3) / 180)
    assert abs(found.accuracy - truth(now, held)) < 5 * found.error < 25


def test_a_job_goes_on_from_a_checkpoint_between_round_and_count(tmp_path: Path):
    nodes = make_nodes(tmp_path / "nodes")
    now = at_evaluation(nodes, PAPER)
    save(now, tmp_path / "checkpoint.npz")
    again = restore(tmp_path / "checkpoint.npz")
    assert (again.phase, again.round, again.finished) == (Phase.EVALUATION, 2, False)
    end = finish(nodes, again)
    save(end, tmp_path / "checkpoint.npz")
    card = trained_of_job(tmp_path / "checkpoint.npz").card
    assert f"counted at the nodes under noise: {str(end.measured[0]).removeprefix('accuracy ')}" in card
    assert restore(tmp_path / "checkpoint.npz").measured == end.measured and end.finished


def test_a_count_goes_on_without_a_client_where_rounds_do(tmp_path: Path):
    nodes = make_nodes(tmp_path)
    now = at_evaluation(nodes, replace(PAPER, min_clients=2))
    found = step(now, {p.name: answer(p, now.request()) for p in nodes[1:]}).measured[-1]
    assert (found.records, found.clients) == (32, ("n1", "n2"))


def test_a_false_count_is_named(tmp_path: Path):
    nodes = make_nodes(tmp_path)
    now = at_evaluation(nodes, PAPER)
    uploads = ask_all(nodes, now) | {"n1": {"upload0": np.array([1e6], np.float32)}}
    assert "clip and noise allow no more" in faults(now, uploads)["n1"]


@pytest.mark.parametrize("held", [False, True])
def test_under_masks_only_the_sum_of_counts_is_seen(tmp_path: Path, held: bool):
    """With hardly any noise it is the truth; with noise, the error is one client's and not three."""
    pytest.importorskip("cryptography")
    from node_sums import summing_nodes

    nodes, records = summing_nodes(tmp_path, epsilon=1e9, smallest_multiplier=1e-9), parts()
    if held:
        nodes, records = holding_out(nodes, (5, 9, 3))
    now = finish(nodes, start(nodes, replace(PAPER, epsilon=1e8, trust="secure-sum", weights="size")))
    (found,) = now.measured
    assert found.accuracy == pytest.approx(truth(now, records), abs=0.5)
    total = sum(len(y) for _, y in records)
    assert found.error == pytest.approx(100 * now.job.stds[Phase.EVALUATION][0] / total)
    assert "right answers (secure sum of 3)" in {line.label for _, line in nodes[0].account.entries()}


def test_uniform_weights_cannot_be_counted_under_masks(tmp_path: Path):
    with pytest.raises(InputError, match="weights size"):
        start(make_nodes(tmp_path), replace(PAPER, trust="secure-sum", weights="uniform"))


@pytest.mark.parametrize("terms", [{"evaluations": -1}, {"evaluations": 3}, {"evaluations": 1, "evaluation_share": 1.0},
                                   {"evaluations": True, "evaluation_share": 0.1}])  # fmt: skip
def test_senseless_terms_of_a_count(tmp_path: Path, terms: dict):
    request = start(make_nodes(tmp_path), replace(PAPER, evaluate="")).request()
    with pytest.raises(InputError, match="make no sense"):
        with_terms(request, **terms)


def test_every_record_is_as_long_as_the_clip_allows_and_no_longer():
    """Whatever a record is, NaN too, it gives a half or minus a half: its length is public."""
    seen = []

    class Door:
        size = 1.0

        def sum(self, fn, **how):
            x = jnp.array([[0.0, 1.0], [jnp.nan, 1.0], [jnp.inf, -jnp.inf]])
            seen.extend(float(fn(row, jnp.int32(1))[0]) for row in x)
            assert how["clip"] == CLIP and how["share"] == 0.1
            return jnp.zeros(1)

    Evaluation(times=1, share=0.1).client(softmax_head())(Door(), jnp.eye(3, 2), (), ())
    assert set(map(abs, seen)) == {0.5}


@pytest.mark.parametrize("error, said", [(1.234, "87.3 ± 1.2 %"), (0.0, "87.31 %"), (12.0, "87 ± 12 %"),
                                         (0.05, "87.31 ± 0.05 %")])  # fmt: skip
def test_an_accuracy_has_as_many_digits_as_it_deserves(error: float, said: str):
    text = str(Measured(after=1, accuracy=87.31, error=error, records=10, held_out=True))
    assert text.startswith(f"accuracy {said} (private count")


def test_a_policy_without_that_file_is_told(tmp_path: Path):
    (tmp_path / "policy.toml").write_text(policy_toml(test="nowhere.npz"))
    assert read_policy(tmp_path / "policy.toml").test == tmp_path / "nowhere.npz"
