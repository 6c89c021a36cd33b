"""Prices that are no whole numbers, kept as they are: at a node, in its ledger file, and in what is certified of it."""

import copy
import math
import os
import stat
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from fedsofim import extensions
from fedsofim.core.mechanisms import Diagonal, Independent, Mechanism
from fedsofim.core.phase import Phase
from fedsofim.deploy import certificate
from fedsofim.deploy.account import Account
from fedsofim.deploy.lines import Line, epsilon_of_lines
from fedsofim.deploy.node import answer, consider
from fedsofim.deploy.order import Order
from fedsofim.deploy.policy import Policy, read_policy
from fedsofim.deploy.pricing import priced
from fedsofim.deploy.wire import programs_of
from fedsofim.errors import InputError, Refused
from ledgers import DELTA, ask, charged, line, open_
from node_programs import prepared, values
from node_sums import summing_nodes
from nodes import X, asked, finish, make_nodes, spent, start, started

# --- what a node charges itself -----------------------------------------------------------------------------


def lines_of(
    policy: Policy, noise: Mechanism | float, rounds: int, round: int, times: int = 1, sample: float = 1.0
) -> list[Line]:
    """The price of one round of a client that releases `times` sums with this noise, at multiplier 4."""

    def client(door):
        if times == 1:
            return door.sum(values, noise=noise, sample=sample)
        return door.scan(lambda inner, c: c + inner.sum(values, noise=noise), jnp.zeros(3), times)

    program, _ = prepared(client, X, rounds=rounds, clip=1.0)
    request = asked([policy], rounds=rounds)
    job = replace(request.job, stds={Phase.ROUND: [4.0]})
    programs = replace(programs_of(request.job, 7), by_phase={Phase.ROUND: program})
    return priced(policy, request._replace(job=job, round=round), programs, 7).lines


@pytest.mark.parametrize("scale, times", [(0.6, 1), (1.7, 1), (2.0, 3)])
def test_noise_of_another_size_is_priced_exactly(nodes: list[Policy], scale: float, times: int):
    (found,) = lines_of(nodes[0], Independent(scale), rounds=5, round=2, times=times)
    assert (found.releases, found.multiplier, found.ratio, found.sample) == (times, 4.0, 2.0, 1.0)
    assert found.coordinates == X.shape[1]
    assert found.weight == pytest.approx(times / scale**2, rel=1e-12)
    alike = line(multiplier=4.0 * scale)
    one = [replace(alike, ratio=2.0, coordinates=found.coordinates)] * times
    assert epsilon_of_lines([found], DELTA) == pytest.approx(epsilon_of_lines(one, DELTA), rel=1e-9)


def test_a_sampled_release_is_charged_as_one(nodes: list[Policy]):
    (found,) = lines_of(nodes[0], Independent(), rounds=5, round=2, sample=0.25)
    assert (found.sample, found.releases, found.weight) == (0.25, 1, 1.0)


def test_a_sum_over_one_client_hides_nothing(nodes: list[Policy]):
    path = nodes[0].data.parent / "policy.toml"
    path.write_text(path.read_text() + "secure_sum_min_clients = 1\n")
    with pytest.raises(InputError, match="hides nothing"):
        read_policy(path)


@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_noise_of_another_size_is_not_shared(tmp_path: Path, scale: float):
    """Shares are drawn at the size that the sum needs, whatever the program says: its price would be another."""
    pytest.importorskip("cryptography")
    policies = summing_nodes(tmp_path, epsilon=50.0)
    request = asked(policies, trust="secure-sum", rounds=5)
    program, _ = prepared(lambda door: door.sum(values, noise=Independent(scale)), X, rounds=5, clip=10.0)
    size = dict(request.job.peers)[policies[0].name]
    programs = programs_of(request.job, size)
    assert priced(policies[0], request, programs, size).lines
    with pytest.raises(Refused, match="needs full noise"):
        priced(policies[0], request, replace(programs, by_phase={Phase.ROUND: program}), size)


def test_every_round_of_a_schedule_is_priced_at_its_own_noise(nodes: list[Policy]):
    """Scale² of round t is mean(sqrt)/sqrt(T-t), so that the whole run costs T."""
    rounds = 7
    weights = [lines_of(nodes[0], Diagonal(rounds), rounds, t)[0].weight for t in range(rounds)]
    mean = np.mean(np.sqrt(np.arange(1, rounds + 1)))
    np.testing.assert_allclose(weights, np.sqrt(np.arange(rounds, 0, -1)) / mean, rtol=1e-12)
    assert sum(weights) == pytest.approx(rounds, rel=1e-12)


def test_the_operators_least_noise_is_asked_of_the_round_itself(nodes: list[Policy]):
    """Early rounds of the schedule have less noise than its multiplier says, late ones more."""
    first = math.sqrt(np.mean(np.sqrt(np.arange(1, 8)))) * 7**-0.25
    assert lines_of(replace(nodes[0], smallest_multiplier=4.0 * first * 0.999), Diagonal(7), 7, 0)
    strict = replace(nodes[0], smallest_multiplier=4.0 * first * 1.001)
    with pytest.raises(Refused, match="smallest allowed"):
        lines_of(strict, Diagonal(7), 7, 0)
    assert lines_of(strict, Diagonal(7), 7, 6)


@pytest.mark.slow
def test_every_release_of_a_request_is_charged(nodes: list[Policy], monkeypatch):
    """A stranger's method with two of them a round; at the end the budget is spent, to the last digit."""
    offered = EntryPoint("two", "two_releases:two_releases", "fedsofim.methods")
    monkeypatch.setattr(extensions, "entry_points", lambda group: [offered] if group == "fedsofim.methods" else [])
    nodes = [replace(policy, methods=("two",)) for policy in nodes]
    request = asked(nodes, "two")
    price = priced(nodes[0], request, programs_of(request.job, 7), 7)
    assert list(price.stds.values()) == request.job.stds[Phase.ROUND]
    assert price.stds[0] == pytest.approx(5 * price.stds[1], rel=1e-9)  # clips of 10 and 2
    finish(nodes, started(nodes, "two", settings=(("noise", "0.5"),)))
    lines = [one for _, one in Account(nodes[0].ledger).entries()]
    assert [(one.clip, one.weight) for one in lines] == [(10.0, 1.0), (2.0, 4.0)] * 2
    assert spent(nodes[0]) == pytest.approx(1.0, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("method, more", [("fedfc", {}), ("fedgd", {"standardize": 0.2})], ids=["setup", "moments"])
def test_a_job_is_considered_with_its_one_shot_phases(nodes: list[Policy], method: str, more: dict[str, Any]):
    job = started(nodes, method, **more).job
    assert consider(nodes[0], job)["epsilon"] == pytest.approx(1.0, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [(("noise", "diagonal"),), (("restart", "3"),)], ids=str)
def test_a_run_of_such_rounds_spends_the_budget(tmp_path: Path, settings: tuple):
    nodes = make_nodes(tmp_path)
    now = finish(nodes, started(nodes, "ftrl", rounds=5, settings=settings))
    for policy in nodes:
        assert spent(policy) == pytest.approx(1.0, rel=1e-6)
        assert now.plan.epsilon == pytest.approx(1.0, rel=1e-9)


# --- the file -----------------------------------------------------------------------------------------------

ODD = Line(
    label="odd", clip=1 / 3, ratio=math.sqrt(2), multiplier=math.pi, releases=3, weight=0.7853981633974483,
    sample=1.0, coordinates=2**38,
)  # fmt: skip


def test_a_line_comes_back_from_the_file_bit_by_bit(tmp_path: Path):
    open_(tmp_path / "ledger.db", ask(), lines=[ODD, line()])
    assert Account(tmp_path / "ledger.db").entries() == [("job", ODD), ("job", line())]


def test_lines_alike_but_for_one_number_add_up_apart():
    """Composition by hand: mu² = Σ weight·(ratio/multiplier)²."""
    lines = [ODD, replace(ODD, ratio=2.0), replace(ODD, multiplier=5.0), replace(ODD, weight=2.5), replace(ODD)]
    lines = [replace(one, coordinates=1) for one in lines]
    mu = math.sqrt(sum(one.weight * (one.ratio / one.multiplier) ** 2 for one in lines))
    alone = replace(ODD, ratio=2.0, multiplier=2.0 / mu, releases=1, weight=1.0, coordinates=1)
    assert epsilon_of_lines(lines, DELTA) == pytest.approx(epsilon_of_lines([alone], DELTA), rel=1e-9)


def test_sampled_lines_are_counted_as_if_they_had_read_all_records():
    """Why: test_chosen_by_answers.py."""
    full, part = line(), line(sample=0.05)
    assert epsilon_of_lines([full, part], DELTA) == epsilon_of_lines([full, full], DELTA)
    thrice = replace(part, releases=3, weight=3.0)
    assert epsilon_of_lines([part] * 3, DELTA) == pytest.approx(epsilon_of_lines([thrice], DELTA), rel=1e-9)


def test_ties_of_the_sampler_are_taken_off_delta():
    """2^38 coordinates, 3 times: 3·2^38·64·2^-64 of delta."""
    lost = 3 * 2.0**38 * 64 * 2.0**-64
    exact = replace(ODD, coordinates=0)
    assert epsilon_of_lines([ODD], DELTA) == pytest.approx(epsilon_of_lines([exact], DELTA - lost), rel=1e-9)
    assert epsilon_of_lines([ODD], DELTA) > epsilon_of_lines([exact], DELTA - 0.8 * lost)
    assert epsilon_of_lines([ODD], lost) == math.inf


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_the_ledger_is_for_its_owners_eyes_only(tmp_path: Path, mask: int):
    """It holds secrets of noise. Whatever the operator's umask is, and through every transaction."""
    path, before = tmp_path / "ledger.db", os.umask(mask)
    try:
        Account(path).create()
        modes = {stat.S_IMODE(path.stat().st_mode)}
        opened = open_(path, ask())
        Account(path).close_ask(opened.number, b"reply", b"")
        modes.add(stat.S_IMODE(path.stat().st_mode))
    finally:
        os.umask(before)
    assert modes == {0o600}
    assert charged(path) == 1


def test_nobody_else_reads_which_requests_are_held(nodes: list[Policy]):
    answer(nodes[0], asked(nodes))
    folder = nodes[0].ledger.with_name(f"{nodes[0].ledger.name}.held")
    assert stat.S_IMODE(folder.stat().st_mode) & 0o077 == 0


# --- what is certified --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certified(tmp_path_factory) -> tuple[dict[str, Any], list[Path]]:
    nodes = make_nodes(tmp_path_factory.mktemp("certified"))
    order = Order(recipe="paper", method="ftrl", epsilon=0.6, rounds=3, settings=(("noise", "diagonal"),))
    job = finish(nodes, start(nodes, order)).job.id
    document = certificate.document_of(job, {p.name: certificate.statement(p) for p in nodes})
    return document, [p.ledger for p in nodes]


def scaled(document: dict[str, Any], path: tuple, factor: float) -> dict[str, Any]:
    changed = copy.deepcopy(document)
    place = changed["clients"]["n1"]
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] *= factor
    return changed


@pytest.mark.parametrize("path", [("epsilon",), ("jobs", 0, "epsilon")], ids=str)
def test_an_epsilon_is_checked_to_nine_digits(certified, path: tuple):
    document, ledgers = certified
    assert certificate.verify(scaled(document, path, 1 + 1e-12), ledgers) == []
    for wrong in (0.99, 1.01, 1 + 1e-6, 1 - 1e-6, 1 + 1e-8, 1 - 1e-8):
        assert certificate.verify(scaled(document, path, wrong), ledgers)


@pytest.mark.parametrize("name", ["unit_releases", "clip", "sensitivity", "multiplier"])
def test_numbers_of_a_release_are_checked_to_the_last(certified, name: str):
    document, ledgers = certified
    path = ("jobs", 0, "released", 0, name)
    assert certificate.verify(document, ledgers) == []
    assert certificate.verify(scaled(document, path, 1 + 1e-12), ledgers)


def test_a_statement_has_a_row_for_every_kind_of_release(tmp_path: Path):
    """Rows are alike in every number that decides a price; what they cost adds up as it is, in parts of releases."""
    plain = replace(ODD, coordinates=9)
    others: list[dict[str, Any]] = [{"multiplier": 5.0}, {"clip": 2.0}, {"ratio": 2.0}, {"label": "b"}]
    kinds = [plain, *(replace(plain, **other) for other in others)]
    path = tmp_path / "ledger.db"
    open_(path, ask(), lines=kinds)
    open_(path, ask(1), lines=[replace(plain, weight=0.25)])
    (job,) = certificate.account_of(Account(path), Account(path).last(), DELTA)["jobs"]
    found = [(r["what"], r["clip"], r["sensitivity"], r["multiplier"], r["sampled"]) for r in job["released"]]
    assert found == [(k.label, k.clip, k.ratio * k.clip, k.multiplier, k.sample) for k in kinds]
    assert [r["releases"] for r in job["released"]] == [6, 3, 3, 3, 3]
    assert [r["unit_releases"] for r in job["released"]] == pytest.approx([ODD.weight + 0.25, *[ODD.weight] * 4])
