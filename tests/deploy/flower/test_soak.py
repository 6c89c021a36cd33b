"""The soak's short form, in one process, and that its judge notices what it is there to notice.

The long form is `make soak` (docs/soak.md): real processes, the same promises.
"""

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedsofim[flower]'")

from fake_grid import FakeClock, FakeGrid, numbered
from fedsofim.deploy.checkpoint import CHECKPOINT, restore
from fedsofim.deploy.lines import epsilon_of_lines
from fedsofim.deploy.policy import Policy
from node_sums import order_of_five, summing_nodes
from nodes import SMALL, make_nodes
from soak_invariants import broken_by_job, broken_by_uploads, broken_in_ledger, broken_on_the_way, rows_in
from soaked import Soaked, soaked
from strategies import strategy

JOBS = (
    {"recipe": "paper", "method": "fedgd", "epsilon": 0.5, "rounds": 4, "clients": 3, "min-clients": 2},
    {"recipe": "paper", "method": "scaffold", "settings": "local_steps=2", "epsilon": 0.5, "rounds": 3, "clients": 3},
)  # fmt: skip


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> list[Policy]:
    return make_nodes(tmp_path_factory.mktemp("soak") / "nodes")


@pytest.fixture(scope="module")
def soak(sites: list[Policy], tmp_path_factory: pytest.TempPathFactory) -> Soaked:
    return soaked(sites, tmp_path_factory.mktemp("soak") / "jobs", JOBS, seed=7)


def ledgers(sites: list[Policy]) -> dict:
    return {policy.name: rows_in(policy.ledger) for policy in sites}


# --- what holds ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_whatever_is_killed_lost_or_full_no_release_is_without_its_charge_and_jobs_come_to_their_end(
    sites: list[Policy], soak: Soaked
):
    wanted = {"node killed", "disk full", "answer lost", "question repeated", "server killed before",
              "server killed after", "server's disk full"}  # fmt: skip
    assert wanted <= set(soak.counts), "this seed does not try everything"
    assert broken_by_uploads([*soak.left, *soak.received], ledgers(sites)) == []
    assert broken_on_the_way(soak.left, soak.received) == []
    by_name = {policy.name: policy for policy in sites}
    assert [b for policy in sites for b in broken_in_ledger(policy)] == []
    assert [b for now in soak.states for b in broken_by_job(now, by_name)] == []
    assert soak.outcomes == [{"finished": 4}, {"finished": 3}]
    assert len(soak.left) > len(set(soak.left)), "nothing was asked twice, so this says little"


# --- what is noticed ----------------------------------------------------------------------------------------


@pytest.fixture
def copy(sites: list[Policy], soak: Soaked, tmp_path: Path) -> Policy:
    """The first node's ledger as a copy, to be spoilt."""
    ledger = tmp_path / "ledger.db"
    shutil.copy(sites[0].ledger, ledger)
    return replace(sites[0], ledger=ledger)


def spoil(policy: Policy, statement: str) -> None:
    with closing(sqlite3.connect(policy.ledger)) as db, db:
        db.execute(statement)
    db.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("DELETE FROM charges", "it left without a charge"),
        ("UPDATE charges SET releases=0", "it left without a charge"),
        ("UPDATE asks SET answer='00'", "what left is not what the ledger keeps"),
        ("UPDATE asks SET round=round+1", "it was charged as job"),
    ],
)
def test_a_ledger_that_does_not_cover_what_left_is_noticed(copy: Policy, soak: Soaked, statement: str, told: str):
    mine = [upload for upload in soak.left if upload.node == copy.name]
    assert broken_by_uploads(mine, {copy.name: rows_in(copy.ledger)}) == []
    spoil(copy, statement)
    broken = broken_by_uploads(mine, {copy.name: rows_in(copy.ledger)})
    assert len(broken) == len(set(mine)) and all(told in text for text in broken)
    assert broken_in_ledger(copy) != []


@pytest.mark.slow
def test_an_upload_that_nobody_charged_and_a_second_answer_are_noticed(sites: list[Policy], soak: Soaked):
    one = soak.left[0]
    assert "without a charge" in broken_by_uploads([one._replace(question="other")], ledgers(sites))[0]
    assert "two answers" in broken_by_uploads([one, one._replace(answer="00")], ledgers(sites))[-1]
    assert "nobody saw it leave" in broken_on_the_way(soak.left, [one._replace(answer="00")])[0]


@pytest.mark.slow
def test_a_short_ledger_is_noticed(sites: list[Policy], soak: Soaked, copy: Policy):
    now, by_name = soak.states[1], {policy.name: policy for policy in sites} | {copy.name: copy}
    assert broken_by_job(now, by_name) == []
    dearer = replace(now, order=replace(now.order, epsilon=1.0))  # as if its releases had been priced at twice that
    assert len([text for text in broken_by_job(dearer, by_name) if "its ledger says 0.5" in text]) == 3
    spoil(copy, f"UPDATE asks SET answer=NULL WHERE job='{now.job.id}' AND round=2")
    assert any(f"{copy.name} took part in round 2" in text for text in broken_by_job(now, by_name))


@pytest.mark.slow
def test_a_ledger_over_its_cap_is_noticed(sites: list[Policy], soak: Soaked):
    assert "above the cap" in broken_in_ledger(replace(sites[0], epsilon=0.1))[0]


@pytest.mark.slow
def test_the_price_of_a_secure_sum_is_each_clients_own(tmp_path: Path):
    """A larger site counts for less of each record and pays less; the judge had called its ledger short."""
    sites = summing_nodes(tmp_path / "nodes", trusted=3, data=SMALL)
    strategy(tmp_path, order_of_five(clients=3), clock=FakeClock()).start(FakeGrid(numbered(sites)))
    now, by_name = restore(tmp_path / "job" / CHECKPOINT), {policy.name: policy for policy in sites}
    paid = [epsilon_of_lines([line for _, line in policy.account.entries()], now.plan.delta) for policy in sites]
    assert now.plan.sizes[0] != max(now.plan.sizes) and max(paid) - min(paid) > 0.1 * max(paid)
    assert broken_by_job(now, by_name) == []
    dearer = replace(now, order=replace(now.order, epsilon=2 * now.order.epsilon))
    assert len([text for text in broken_by_job(dearer, by_name) if "its ledger says" in text]) == 3
