"""Whom a node protects: its policy says it, and jobs that protect less are refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsofim.core.budget import NO_PRIVACY, WITHOUT, Budget
from fedsofim.core.phase import Phase
from fedsofim.data.partition import Split
from fedsofim.deploy.certificate import check, document_of, readable, statement, verify
from fedsofim.deploy.job_state import JobState
from fedsofim.deploy.node import consider, hello
from fedsofim.deploy.order import Order
from fedsofim.deploy.pages.ledger_look import look_at
from fedsofim.deploy.pages.operators import page_of
from fedsofim.deploy.policy import Policy, read_policy
from fedsofim.deploy.readiness import findings
from fedsofim.deploy.records import DataProblem, read_data
from fedsofim.deploy.round_notes import plan_in_words
from fedsofim.errors import InputError, Refused
from fedsofim.methods import make
from fedsofim.simulation.simulator import simulate
from fedsofim.simulation.training import plan_for
from hospital import write_schema, write_table
from node_sums import introduced
from nodes import (
    REHEARSAL,
    SMALL,
    asked,
    finish,
    make_nodes,
    refusal,
    spent,
    start,
    started,
    table_node,
    with_terms,
)

PERSON = np.array([f"p{i % 13}" for i in range(len(SMALL.dataset.y_train))])  # at each client two or three of a person
PERSONS: Split = replace(SMALL, dataset=replace(SMALL.dataset, person=PERSON)).protecting("person", 2)
WHOM: dict[str, Any] = {"unit": "person", "records_per_person": 2}


def saying(policy: Policy, unit: str | None, most: int | None) -> Policy:
    """The same node with other words on whom it protects."""
    path = policy.ledger.parent / "policy.toml"
    lines = [line for line in path.read_text().splitlines() if not line.startswith(("unit", "records_per_person"))]
    said = [f'unit = "{unit}"'] * (unit is not None) + [f"records_per_person = {most}"] * (most is not None)
    at = lines.index("[budget]") + 1
    path.write_text("\n".join([*lines[:at], *said, *lines[at:]]) + "\n")
    return read_policy(path)


def of_persons(folder: Path, unit: str | None = "person", most: int | None = 2, **changed: Any) -> list[Policy]:
    """Nodes whose records say whose they are."""
    out = []
    for i, policy in enumerate(make_nodes(folder, SMALL, **changed)):
        rows = SMALL.parts[i]
        np.savez(policy.data, x=SMALL.dataset.x_train[rows], y=SMALL.dataset.y_train[rows], person=PERSON[rows])
        out.append(saying(policy, unit, most))
    return out


@pytest.mark.parametrize("nobody", ["", "  ", np.nan], ids=["empty", "blank", "no number"])
def test_records_that_name_no_person_are_a_matter_of_the_operators(tmp_path: Path, nobody: Any):
    """As one person they would tie strangers together, and tear apart whoever is named in other records."""
    policy = of_persons(tmp_path)[0]
    rows = SMALL.parts[0]
    person = (PERSON[rows] if isinstance(nobody, str) else np.arange(len(rows)).astype(float)).copy()
    person[[0, 3]] = nobody
    np.savez(policy.data, x=SMALL.dataset.x_train[rows], y=SMALL.dataset.y_train[rows], person=person)
    with pytest.raises(DataProblem, match="cannot be told apart") as caught:
        hello(policy)
    assert "2 records name no person" in caught.value.details
    read_data(saying(policy, None, None))  # to whoever protects records it is all the same


def deployed(nodes: list[Policy], **order: Any) -> JobState:
    return finish(nodes, started(nodes, **WHOM | order))


# --- what is computed ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "clip"), [("fedgd", 1.0), ("scaffold", 100.0)])
def test_a_deployed_job_equals_the_simulators_without_noise(tmp_path: Path, method: str, clip: float):
    """One clips before the guard and the other after it, by 5e-4 of the clip."""
    nodes = of_persons(tmp_path, largest_clip=100.0, **REHEARSAL)
    now = deployed(nodes, method=method, epsilon=WITHOUT, clip=clip)
    plan = plan_for(PERSONS, make(method), NO_PRIVACY, 2, clip=clip)
    params, _ = simulate(plan, PERSONS, 0, every=2)
    assert plan.sizes == tuple(c.size for c in now.clients) == (7, 13, 12)
    np.testing.assert_allclose(now.params, params, rtol=2e-3, atol=2e-4)
    of_records = simulate(plan_for(SMALL, make(method), NO_PRIVACY, 2, clip=clip), SMALL, 0, every=2)[0]
    assert np.abs(np.asarray(now.params) - of_records).max() > 1e-2


def test_a_ledger_has_the_simulators_price(tmp_path: Path):
    nodes = of_persons(tmp_path)
    now = deployed(nodes)
    plan = plan_for(PERSONS, make("fedgd"), Budget(1.0), 2)
    assert now.job.stds[Phase.ROUND] == plan.stds(Phase.ROUND) and now.plan.epsilon == plan.epsilon
    assert all(spent(node) == pytest.approx(plan.epsilon, rel=1e-9) for node in nodes)


@pytest.mark.slow
def test_a_preparation_and_a_private_count_are_of_persons_too(tmp_path: Path):
    nodes = of_persons(tmp_path, epsilon=8.0, smallest_multiplier=1e-6)
    order = Order(recipe="auto", epsilon=8.0, rounds=2, clients=3, evaluate="private", **WHOM)
    now = finish(nodes, start(nodes, order))
    assert str(now.measured[0]).endswith("32 persons, some of which it was trained on)")
    assert all(spent(node) == pytest.approx(8.0, rel=1e-6) for node in nodes)


def test_whole_clients_are_protected_under_secure_sum(tmp_path: Path):
    pytest.importorskip("cryptography")
    nodes = introduced(make_nodes(tmp_path, SMALL, epsilon=1e9, smallest_multiplier=1e-9), 3)
    nodes = [saying(node, "client", 20) for node in nodes]
    assert {hello(node)["size"] for node in nodes} == {1}
    order: dict[str, Any] = {"unit": "client", "records_per_person": 20}
    with pytest.raises(Refused, match="cannot protect whole clients"):
        started(nodes, **order)
    steps: dict[str, Any] = {"settings": (("lr", "1.0"),), "clip": 1.0, "trust": "secure-sum"}
    now = finish(nodes, started(nodes, epsilon=1e8, **steps, **order))
    split = SMALL.protecting("client", 20)
    plan = plan_for(split, make("fedgd", {"lr": 1.0}), NO_PRIVACY, 2, clip=1.0, trust="secure-sum")
    params, _ = simulate(plan, split, 0, every=2)
    np.testing.assert_allclose(now.params, params, atol=2e-3)


# --- what is refused, in words, and costs nothing -----------------------------------------------------------


def test_a_job_that_protects_records_is_refused_where_persons_are_protected(tmp_path: Path):
    nodes = of_persons(tmp_path)
    with pytest.raises(InputError, match="the job protects one record, and n0 protects one person"):
        started(nodes)
    request = with_terms(asked(nodes, **WHOM), unit="record", places=0)  # a server that asks anyway
    assert "which is less than this node does: one person with all their records" in refusal(nodes[0], request)
    with pytest.raises(Refused, match="less than this node does"):
        consider(nodes[0], request.job)


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({"unit": "client", "places": 2}, "this node's policy says one person"),
        ({"places": 3}, "3 records of a person are to count; the most allowed here is 2"),
    ],
)
def test_other_terms_than_the_policys_are_refused(tmp_path: Path, terms: dict[str, Any], words: str):
    nodes = of_persons(tmp_path)
    assert words in refusal(nodes[0], with_terms(asked(nodes, **WHOM), **terms))


@pytest.mark.parametrize("terms", [{"unit": "household"}, {"places": 0}, {"unit": "record"}, {"places": 10**7}])
def test_terms_that_make_no_sense_are_no_terms(tmp_path: Path, terms: dict[str, Any]):
    with pytest.raises(InputError, match="make no sense"):
        with_terms(asked(of_persons(tmp_path), **WHOM), **terms)


def test_what_was_charged_for_records_cannot_become_a_promise_to_persons(tmp_path: Path):
    nodes = of_persons(tmp_path, None, None, epsilon=10.0)
    finish(nodes, started(nodes))
    assert statement(nodes[0])["unit"] == "record"
    later = [saying(node, "person", 2) for node in nodes]
    assert "charges of jobs that protected less than one person" in refusal(later[0], asked(later, **WHOM))
    said = [f.text for f in findings(later[0].ledger.parent / "policy.toml", None, None, None) if not f.right]
    assert len(said) == 1 and "protected less than" in said[0]


def test_a_policy_says_whom_and_how_many_of_theirs_count(tmp_path: Path):
    (node, *_) = of_persons(tmp_path, None, None)
    for unit, most in (("person", None), ("record", 3), ("person", 0), ("household", 2)):
        with pytest.raises(InputError, match=r"records_per_person|unit is"):
            saying(node, unit, most)
    nobody = saying(node, "person", 2)
    np.savez(node.data, x=SMALL.dataset.x_train, y=SMALL.dataset.y_train)
    with pytest.raises(DataProblem, match="nothing says whose each record is"):
        hello(nobody)
    with pytest.raises(InputError, match="records-per-person"):
        started([node], unit="person")


def test_a_table_is_laid_out_by_the_schemas_column_of_persons(tmp_path: Path):
    table, schema = write_table(tmp_path / "a.csv", 30), write_schema(tmp_path / "schema.toml")
    node = saying(table_node(tmp_path / "n", table, schema, "n0", epsilon=100.0), "person", 2)
    assert (hello(node)["size"], len(read_data(node).y)) == (15, 30)  # two records for each patient
    now = started([node], rounds=1, epsilon=50.0, **WHOM)
    assert now.job.places == 2 and consider(node, now.job)["epsilon"] == pytest.approx(50.0, rel=1e-6)


# --- what is told -------------------------------------------------------------------------------------------


def test_how_many_records_a_person_has_changes_nothing_that_is_told(tmp_path: Path):
    (node, *_) = of_persons(tmp_path)
    before, file = hello(node), read_data(node)
    more = np.r_[np.arange(len(file.y)), 0, 0]  # the first person has two records more
    np.savez(node.data, x=file.x[more], y=file.y[more], person=PERSON[SMALL.parts[0]][more])
    assert hello(node) == before and before["unit"] == "person"
    assert read_data(node).fingerprint != file.fingerprint


def test_certificate_page_and_check_say_whom(tmp_path: Path):
    nodes = of_persons(tmp_path)
    now = deployed(nodes)
    document = document_of(now.job.id, {node.name: statement(node) for node in nodes})
    text = readable(document)
    assert text.count("it protects one person with all their records at a client") == 3
    assert "per person, noise std" in text and "record level" not in text
    ledgers = [node.ledger for node in nodes]
    assert verify(document, ledgers) == [] and check(document) == []
    lied = json.loads(json.dumps(document))
    lied["clients"]["n0"]["jobs"][0]["unit"] = lied["clients"]["n0"]["unit"] = "client"
    assert any("by its ledger it is one person" in problem for problem in verify(lied, ledgers))
    lied["clients"]["n0"]["jobs"][0]["unit"] = "record"
    assert any("which one of its jobs did not" in problem for problem in check(lied))
    page = page_of(nodes[0], look_at(nodes[0], 10), [], "", None)
    assert "one person with all their records at a client" in [figure.value for figure in page.figures]
    assert "person" in [cell.text for cell in page.tables[0].rows[0]]
    said = " ".join(f.text for f in findings(nodes[0].ledger.parent / "policy.toml", None, None, None))
    assert "for one person with all their records" in said and "7 records of 7 persons, at most 1 of one" in said
    assert "for one person with all their records at a client" in plan_in_words(now)[0]
