"""Signed statements: nothing in them can be changed, left out or passed off as another's; sums need no ledger."""

import copy
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography")

from fedsofim.deploy import certificate, credentials
from fedsofim.deploy.policy import Policy
from fedsofim.deploy.signatures import fingerprint, known_keys, trouble_with
from fedsofim.errors import InputError
from nodes import finish, make_nodes, started


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Policy], Path, dict[str, Any]]:
    """Nodes after a job, their public keys, and its certificate."""
    folder = tmp_path_factory.mktemp("signed")
    nodes, keys = make_nodes(folder / "nodes"), folder / "keys"
    keys.mkdir()
    now = finish(nodes, started(nodes))
    stated = {}
    for policy in nodes:
        (keys / f"{policy.name}.pub").write_bytes(credentials.node_key(policy.data.parent, policy.name))
        stated[policy.name] = certificate.statement(policy, policy.data.parent / "node.key")
    return nodes, keys, certificate.document_of(now.job.id, stated)


def test_a_signed_certificate_holds(job):
    nodes, keys, document = job
    assert certificate.check(document, known_keys(keys)) == []
    assert certificate.verify(document, [p.ledger for p in nodes]) == []
    assert f"signed with the key {fingerprint(document['clients']['n0'])}" in certificate.readable(document)


def changed(document: dict[str, Any], how: str) -> dict[str, Any]:
    other = copy.deepcopy(document)
    one = other["clients"]["n0"]
    if how == "cap":
        one["cap"] = 0.5
    elif how == "a line":
        one["jobs"][0]["released"][0]["multiplier"] *= 2
    elif how == "all of it":
        one["jobs"][0]["released"][0]["multiplier"] *= 2
        for part in (one, one["jobs"][0]):
            part["epsilon"] = 0.4
    elif how == "a job left out":
        one |= {"jobs": [], "epsilon": 0.0}
    elif how == "another's":
        other["clients"]["n0"] = other["clients"]["n1"]
    elif how == "no signature":
        del one["signature"]
    elif how == "nonsense":
        one["signature"] = "x"
    elif how == "a key of one's own":
        one["public_key"] = "ssh-rsa AAAA"
    return other


@pytest.mark.parametrize(
    "how",
    ["cap", "a line", "all of it", "a job left out", "another's", "no signature", "nonsense", "a key of one's own"],
)
def test_whatever_is_changed_is_noticed_without_a_ledger(job, how: str):
    _, keys, document = job
    problems = certificate.check(changed(document, how), known_keys(keys))
    assert problems and all(p.startswith("n0: ") or p == "n1: states the same ledger as n0" for p in problems)


def test_a_statement_signed_by_somebody_else_is_noticed(job, tmp_path: Path):
    nodes, keys, document = job
    credentials.node_key(tmp_path, "n0")
    forged = copy.deepcopy(document)
    forged["clients"]["n0"] = certificate.statement(nodes[0], tmp_path / "node.key")
    assert certificate.check(forged) == []  # a right signature, of whoever
    assert certificate.check(forged, known_keys(keys)) == [
        "n0: it is signed with another key than its node is known by"
    ]


def test_an_epsilon_that_does_not_follow_from_the_lines_is_noticed_without_a_signature(job):
    document = copy.deepcopy(job[2])
    one = {k: v for k, v in document["clients"]["n0"].items() if k not in ("signature", "public_key")}
    document["clients"]["n0"] = one | {"epsilon": 0.1}
    (problem,) = certificate.check(document)
    assert "its lines give" in problem


def test_a_ledger_of_another_history_is_noticed(job):
    nodes, _, document = job
    other = copy.deepcopy(document)
    other["clients"]["n0"] |= {"head": "00" * 32}
    assert any("another history" in p for p in certificate.verify(other, [p.ledger for p in nodes]))


def test_the_page_names_every_field_of_a_certificate_and_no_other(job):
    """docs/how-to/certificate.md, both directions."""
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "certificate.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ", 1) for line in page.splitlines() if line.startswith("| ")]
    heads = [i for i, (first, _) in enumerate(rows) if first.startswith("field of")]
    whole, statement = rows[heads[0] + 1 : heads[1]], rows[heads[1] + 1 :]
    told = {first: set(re.findall(r"`(\w+)`", said)) for first, said in statement}
    _, _, document = job
    one = document["clients"]["n0"]
    full = certificate.document_of(document["job"], {"n0": one}, absent={0: ["n1"]}, silent=["n2"])
    assert names_in(whole) == set(full)
    assert names_in(statement) == set(one) | {"released"}
    assert told["`jobs`"] == set(one["jobs"][0])
    assert told["`released`"] == set(one["jobs"][0]["released"][0])


def names_in(rows: list[list[str]]) -> set[str]:
    return {name for first, *_ in rows for name in re.findall(r"`(\w+)`", first)}


def test_what_is_not_signed_says_so(job):
    assert trouble_with({}) == "its statement is not signed"


def test_a_folder_without_keys_is_an_error(tmp_path: Path):
    with pytest.raises(InputError, match="no public keys"):
        known_keys(tmp_path)
