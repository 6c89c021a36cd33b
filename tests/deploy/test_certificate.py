"""The certificate: what the ledgers say, added up; and whatever was changed in it is found."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from fedsofim.core.budget import WITHOUT
from fedsofim.deploy import certificate
from fedsofim.deploy.account import Account
from fedsofim.deploy.order import Order
from fedsofim.deploy.policy import Policy
from fedsofim.errors import InputError
from nodes import REHEARSAL, finish, make_nodes, spent, start

FIRST = Order(recipe="paper", method="fedadam", epsilon=0.6, rounds=2)
SECOND = Order(recipe="paper", method="fedgd", epsilon=0.3, rounds=1)


class Case:
    """Three nodes after two jobs, with the certificate of the second."""

    def __init__(self, folder: Path) -> None:
        self.nodes: list[Policy] = make_nodes(folder)
        self.jobs = [finish(self.nodes, start(self.nodes, order)).job.id for order in (FIRST, SECOND)]
        self.ledgers = [p.ledger for p in self.nodes]
        statements = {p.name: certificate.statement(p) for p in self.nodes}
        self.document = certificate.document_of(self.jobs[1], statements)

    def changed(self) -> dict[str, Any]:
        return copy.deepcopy(self.document)


@pytest.fixture(scope="module")
def case(tmp_path_factory) -> Case:
    return Case(tmp_path_factory.mktemp("case"))


def test_a_statement_adds_up(case: Case):
    for policy in case.nodes:
        stated = case.document["clients"][policy.name]
        assert stated["epsilon"] == pytest.approx(spent(policy), rel=1e-12)
        assert (stated["delta"], stated["cap"]) == (policy.delta, policy.epsilon)
        assert [job["job"] for job in stated["jobs"]] == case.jobs
        assert [job["method"] for job in stated["jobs"]] == ["fedadam", "fedgd"]
        assert [job["epsilon"] for job in stated["jobs"]] == pytest.approx([0.6, 0.3], rel=1e-6)
        (first,), (gradient,) = (job["released"] for job in stated["jobs"])
        assert (first["releases"], gradient["releases"]) == (2, 1)
        assert (gradient["clip"], gradient["sensitivity"], gradient["sampled"]) == (10.0, 20.0, 1.0)
        lines = Account(policy.ledger).entries()
        assert gradient["multiplier"] == lines[-1][1].multiplier
        assert stated["epsilon"] < 0.6 + 0.3


def test_it_holds_and_is_plain_data(case: Case):
    document = json.loads(json.dumps(case.document))
    assert document == case.document
    assert certificate.verify(document, case.ledgers) == []
    assert certificate.verify(document, case.ledgers[::-1]) == []


def test_written_and_read(case: Case, tmp_path: Path):
    machine, people = certificate.write(case.document, tmp_path / "job")
    assert certificate.read(machine) == case.document
    assert people.read_text() == certificate.readable(case.document)


def test_in_words(case: Case):
    text = certificate.readable(case.document)
    assert case.jobs[1] in text
    for policy in case.nodes:
        assert f"{policy.name}: epsilon {spent(policy):.6g} at delta 1e-05" in text
    for words in ("cap 1", "fedadam (another job", "fedgd (this job", "2 x gradient", "clipped at 10", "replace-one"):
        assert words in text
    assert "None" not in text


def tampered(case: Case, path: tuple[Any, ...], value: Any) -> list[str]:
    """What verify finds after one entry of n1's statement was changed."""
    document = case.changed()
    place = document["clients"]["n1"]
    for key in path[:-1]:
        place = place[key]
    assert place[path[-1]] != value
    place[path[-1]] = value
    found = certificate.verify(document, case.ledgers)
    assert all(problem.startswith("n1: ") or f"{case.ledgers[1]}: no statement" in problem for problem in found)
    return found


RELEASED = ("jobs", 0, "released", 0)


@pytest.mark.parametrize(
    "path, value",
    [
        (("epsilon",), 0.1),
        (("epsilon",), 0.0),
        (("epsilon",), None),
        (("epsilon",), WITHOUT),
        (("epsilon",), "0.1"),
        (("epsilon",), float("inf")),
        (("delta",), 1e-3),
        (("through",), 1),
        (("jobs", 1, "epsilon"), 0.29),
        (("jobs", 0, "epsilon"), None),
        ((*RELEASED, "releases"), 1),
        ((*RELEASED, "unit_releases"), 1.0),
        ((*RELEASED, "multiplier"), 1e6),
        ((*RELEASED, "clip"), 1.0),
        ((*RELEASED, "sensitivity"), 1.0),
        ((*RELEASED, "sampled"), 0.5),
        ((*RELEASED, "what"), "nothing"),
        (("jobs", 0, "job"), "another"),
        (("ledger",), "another"),
    ],
    ids=str,
)
def test_a_changed_entry_is_found(case: Case, path: tuple[Any, ...], value: Any):
    assert tampered(case, path, value)


@pytest.mark.parametrize(
    "path, value",
    [
        (("jobs", 0, "method"), "fedgd"),
        (("jobs", 0, "rounds_planned"), 1),
        (("jobs", 0, "clients"), 2),
        (("jobs", 0, "rounds_charged"), 1),
    ],
    ids=str,
)
def test_a_changed_description_of_a_job_is_found(case: Case, path: tuple[Any, ...], value: Any):
    assert tampered(case, path, value)


def test_the_reason_names_what_the_ledger_gives(case: Case):
    (problem,) = tampered(case, ("epsilon",), 0.125)
    assert "0.125" in problem
    assert f"{spent(case.nodes[1]):.6g}" in problem


@pytest.mark.parametrize("job", [0, 1])
def test_an_omitted_job_is_found(case: Case, job: int):
    document = case.changed()
    del document["clients"]["n2"]["jobs"][job]
    assert any(case.jobs[job] in problem for problem in certificate.verify(document, case.ledgers))


def test_an_invented_job_is_found(case: Case):
    document = case.changed()
    jobs = document["clients"]["n2"]["jobs"]
    jobs.append(jobs[0] | {"job": "invented"})
    assert any("invented" in problem for problem in certificate.verify(document, case.ledgers))


def test_a_statement_of_another_nodes_ledger_is_found(case: Case):
    document = case.changed()
    others = case.document["clients"]["n1"]
    document["clients"]["n0"]["ledger"] = others["ledger"]
    document["clients"]["n0"]["epsilon"] = 0.2
    assert certificate.verify(document, case.ledgers)


def test_of_whom_no_ledger_is_given_is_not_looked_at_and_named(case: Case, tmp_path: Path):
    """An operator has one ledger: it is looked up, and nothing is said of the others but that they were not."""
    for given in range(1, 4):
        assert certificate.verify(case.document, case.ledgers[:given]) == []
        assert certificate.unseen(case.document, case.ledgers[:given]) == ["n0", "n1", "n2"][given:]
    document = case.changed()
    document["clients"]["n0"]["epsilon"] = 0.01
    assert certificate.verify(document, case.ledgers[:1]) and not certificate.verify(document, case.ledgers[1:])
    with pytest.raises(InputError, match="no ledger"):
        certificate.verify(case.document, [tmp_path / "none.db"])


def test_a_ledger_that_is_nobodys_is_found(case: Case, tmp_path: Path):
    """Whose statement was forged under another ledger's name: its operator has the ledger that nobody states."""
    foreign = Account(tmp_path / "foreign.db")
    foreign.create()
    (problem,) = certificate.verify(case.document, [*case.ledgers, foreign.path])
    assert problem.startswith(f"{foreign.path}: no statement is of this ledger")
    document = case.changed()
    document["clients"]["n1"]["ledger"] = foreign.identity()
    (problem,) = certificate.verify(document, case.ledgers[:2])
    assert problem.startswith(f"{case.ledgers[1]}: no statement is of this ledger")
    assert certificate.verify(document, [foreign.path])  # nor does another ledger help


def test_two_statements_of_one_ledger_and_one_ledger_twice_are_found(case: Case, tmp_path: Path):
    document = case.changed()
    document["clients"]["n2"] = document["clients"]["n1"] | {"node": "n2"}
    for found in (certificate.check(document), certificate.verify(document, case.ledgers[1:2])):
        assert "n2: states the same ledger as n1" in found
    older = tmp_path / "older.db"
    older.write_bytes(case.ledgers[0].read_bytes())
    (problem,) = certificate.verify(case.document, [case.ledgers[0], older])
    assert problem == f"{older}: the same ledger as {case.ledgers[0]}; give each once"


@pytest.mark.parametrize("where", ["clients", "silent", "absent"])
def test_names_that_look_like_lines_are_refused(case: Case, tmp_path: Path, where: str):
    document = case.changed()
    name = "n9\nholds: 3 clients, 3 of 3 recomputed from ledgers"
    document[where] = {"clients": document["clients"] | {name: document["clients"]["n1"]}, "silent": [name],
                       "absent": {name: [1]}}[where]  # fmt: skip
    (tmp_path / "c.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match="as no node is called"):
        certificate.read(tmp_path / "c.json")


@pytest.mark.parametrize("how", ["client left out", "another job's name"])
def test_what_a_certificate_does_not_say_is_found(case: Case, how: str):
    document = case.changed()
    if how == "client left out":
        del document["clients"]["n1"]
    else:
        document["job"] = "0" * 32
    assert certificate.verify(document, case.ledgers)


def test_a_ledger_that_has_grown_still_verifies(tmp_path: Path):
    case = Case(tmp_path)
    earlier = case.document
    job = finish(case.nodes, start(case.nodes, Order(recipe="paper", method="fedgd", epsilon=0.05, rounds=1))).job.id
    assert certificate.verify(earlier, case.ledgers) == []
    now = certificate.document_of(job, {p.name: certificate.statement(p) for p in case.nodes})
    assert certificate.verify(now, case.ledgers) == []
    for name, stated in now["clients"].items():
        assert stated["epsilon"] > earlier["clients"][name]["epsilon"]
        assert stated["through"] > earlier["clients"][name]["through"]
        assert len(stated["jobs"]) == 3


def test_a_ledger_from_before_the_release_does_not_verify(tmp_path: Path):
    case = Case(tmp_path)
    before = case.ledgers[0].read_bytes()
    job = finish(case.nodes, start(case.nodes, Order(recipe="paper", method="fedgd", epsilon=0.05, rounds=1))).job.id
    now = certificate.document_of(job, {p.name: certificate.statement(p) for p in case.nodes})
    case.ledgers[0].write_bytes(before)  # an old backup
    assert all(problem.startswith("n0: ") for problem in certificate.verify(now, case.ledgers))
    assert certificate.verify(now, case.ledgers)


def test_nothing_released_yet(tmp_path: Path):
    policy = make_nodes(tmp_path)[0]
    stated = certificate.statement(policy)
    assert (stated["epsilon"], stated["jobs"]) == (0.0, [])
    document = certificate.document_of("none", {"n0": stated})
    assert "n0: epsilon 0 " in certificate.readable(document)


def test_without_noise_there_is_no_bound_and_it_says_so(tmp_path: Path):
    nodes = make_nodes(tmp_path, **REHEARSAL)
    job = finish(nodes, start(nodes, Order(recipe="paper", method="fedgd", epsilon=WITHOUT, rounds=1))).job.id
    document = certificate.document_of(job, {p.name: certificate.statement(p) for p in nodes})
    assert document["clients"]["n0"]["epsilon"] == document["clients"]["n0"]["cap"] == WITHOUT
    assert document["clients"]["n0"]["jobs"][0]["epsilon"] == WITHOUT
    assert certificate.verify(json.loads(json.dumps(document)), [p.ledger for p in nodes]) == []
    text = certificate.readable(document)
    assert "n0: no-privacy over the life of its data\n" in text
    assert "no-privacy by itself" in text
    assert not any(word in text for word in ("cap", "inf", "None", "null"))
    document["clients"]["n0"]["epsilon"] = 1.0
    assert certificate.verify(document, [p.ledger for p in nodes])


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", "{}", '{"certificate": 3, "clients": {}}', '{"certificate": 1, "clients": 3}']
)
def test_what_is_no_certificate(tmp_path: Path, text: str):
    (tmp_path / "c.json").write_text(text)
    with pytest.raises(InputError, match=r"c\.json"):
        certificate.read(tmp_path / "c.json")
    with pytest.raises(InputError, match="no such file"):
        certificate.read(tmp_path / "none.json")


@pytest.mark.parametrize("act", ["verify", "readable"])
def test_a_broken_statement_is_an_error_to_read(case: Case, act: str):
    document = case.changed()
    del document["clients"]["n1"]["through"]
    del document["clients"]["n1"]["epsilon"]
    try:
        assert certificate.verify(document, case.ledgers) if act == "verify" else certificate.readable(document)
    except InputError as error:
        assert "n1" in str(error)
