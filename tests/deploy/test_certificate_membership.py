"""A certificate is of its job, of the job's end and of all its clients: what else was signed shows without a ledger."""

import copy
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fedsofim.deploy import certificate
from fedsofim.deploy.order import Order
from fedsofim.deploy.server import step
from nodes import ask_all, finish, make_nodes, start

FIRST = Order(recipe="paper", method="fedadam", epsilon=0.6, rounds=2)
SECOND = Order(recipe="paper", method="fedgd", epsilon=0.3, rounds=1)


class Case(NamedTuple):
    """The certificate of the second of two jobs of three nodes, and their ledgers."""

    document: dict[str, Any]
    ledgers: list[Path]


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    nodes = make_nodes(tmp_path_factory.mktemp("case"))
    jobs = [finish(nodes, start(nodes, order)).job.id for order in (FIRST, SECOND)]
    document = certificate.document_of(jobs[1], {p.name: certificate.statement(p) for p in nodes})
    return Case(document, [p.ledger for p in nodes])


def test_a_statement_of_before_the_jobs_end_is_found(tmp_path: Path):
    """Signed by its node, true when it was made, and less than was released: how far it is, is signed too."""
    nodes = make_nodes(tmp_path)
    now = start(nodes, FIRST)
    now = step(now, ask_all(nodes, now))
    early = {p.name: certificate.statement(p) for p in nodes}
    job = finish(nodes, now).job.id
    document = certificate.document_of(job, early)
    assert certificate.check(document) == [
        f"{n}: states 1 of 2 rounds of this job: it is of before the job's end, or false" for n in ("n0", "n1", "n2")
    ]
    found = certificate.verify(document, [nodes[0].ledger])
    assert [p for p in found if p not in certificate.check(document)] == [
        "n0: states 1 charges for this job; its ledger has 2"
    ]
    away = document | {"absent": {n: [2] for n in ("n0", "n1", "n2")}}  # so the coordinator may say: then it is read
    assert certificate.check(away) == [] and "charged for 1 of 2 rounds" in certificate.readable(away)
    assert certificate.verify(away, [nodes[0].ledger])
    assert certificate.check(document | {"absent": {n: [3, 0, "2"] for n in ("n0", "n1", "n2")}})


def test_statements_of_before_a_job_are_not_its_certificate(tmp_path: Path):
    """The epsilons of the first job alone, signed by every node, handed out as what the second has cost."""
    nodes = make_nodes(tmp_path)
    finish(nodes, start(nodes, Order(recipe="paper", method="fedgd", epsilon=0.1, rounds=1)))
    old = {p.name: certificate.statement(p) for p in nodes}
    second = finish(nodes, start(nodes, Order(recipe="paper", method="fedgd", epsilon=0.8, rounds=2))).job.id
    found = certificate.check(certificate.document_of(second, old))
    assert [p.partition(" of job")[0] for p in found] == [f"{n}: states nothing" for n in ("n0", "n1", "n2")]


def test_who_is_left_out_is_missed_without_a_ledger(case: Case):
    document = copy.deepcopy(case.document)
    del document["clients"]["n2"]
    said = [f"{n}: the job had 3 clients; 2 are named" for n in ("n0", "n1")]
    assert certificate.check(document) == said
    assert certificate.check(document | {"silent": ["n0", "n1"]}) == said  # named twice is no third
    assert certificate.check(document | {"silent": ["n2"]}) == []  # which the words of the certificate say
    assert "Nothing is stated of n2" in certificate.readable(document | {"silent": ["n2"]})
    assert certificate.check(document | {"silent": ["n2", "n3"]})


def test_terms_that_were_not_told_to_all_alike_are_found(case: Case):
    document = copy.deepcopy(case.document)
    document["clients"]["n1"]["jobs"][1]["method"] = "fedadam"
    assert certificate.check(document) == ["n1: states method fedadam of the job, where n0 states fedgd"]


@pytest.mark.parametrize("field", ["clients", "rounds_charged"])
def test_a_field_that_is_not_signed_is_missed_but_in_a_certificate_of_version_1(case: Case, field: str):
    document = copy.deepcopy(case.document)
    for statement in document["clients"].values():
        for job in statement["jobs"]:
            del job[field]
    assert len(certificate.check(document)) == 3
    assert certificate.check(document | {"certificate": 1}) == []
    assert certificate.verify(document | {"certificate": 1}, case.ledgers) == []
    fewer = document | {"certificate": 1, "clients": {n: document["clients"][n] for n in ("n0", "n1")}}
    assert "n0: by its ledger the job had 3 clients; 2 are named" in certificate.verify(fewer, case.ledgers)
    for wrong in ("3", None, 2.5, [3]):
        document["clients"]["n0"]["jobs"][1][field] = wrong
        assert "n0: its clients and rounds are no whole numbers" in certificate.check(document)
