"""`fedsofim certificate`, and what a ledger shows: whether it holds, and in the last line how much was looked up."""

import json
from pathlib import Path
from typing import Any

import pytest

from fedsofim.deploy import certificate
from fedsofim.deploy.order import Order
from nodes import finish, make_nodes, start


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("done")
    nodes = make_nodes(folder / "nodes")
    job = finish(nodes, start(nodes, Order(recipe="paper", method="fedgd", epsilon=0.5, rounds=1))).job.id
    document = certificate.document_of(job, {p.name: certificate.statement(p) for p in nodes})
    machine, _ = certificate.write(document, folder / "job")
    options = [part for p in nodes for part in ("--ledger", p.ledger)]
    return {"nodes": nodes, "certificate": machine, "ledgers": options, "document": document}


@pytest.mark.slow
def test_verify_holds(call, done):
    code, out, err = call("certificate", "verify", done["certificate"], *done["ledgers"])
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == "holds: 3 clients, 3 of 3 recomputed from ledgers (n0, n1, n2)"
    assert "not looked at" not in out


def test_verify_finds_a_changed_epsilon(call, done, tmp_path: Path):
    changed = json.loads(json.dumps(done["document"]))
    changed["clients"]["n2"]["epsilon"] = 0.01
    (tmp_path / "c.json").write_text(json.dumps(changed))
    code, out, _ = call("certificate", "verify", tmp_path / "c.json", *done["ledgers"])
    assert code == 1
    assert out.startswith("WRONG  n2: states epsilon 0.01")
    assert "holds" not in out


def test_verify_says_whose_ledgers_it_did_not_see(call, done):
    code, out, _ = call("certificate", "verify", done["certificate"], *done["ledgers"][2:4])
    assert code == 0
    assert out.splitlines()[-2:] == [
        "not looked at: n0, n2, of which no ledger was given",
        "holds: 3 clients, 1 of 3 recomputed from ledgers (n1)",
    ]


def test_verify_finds_a_ledger_that_is_nobodys(call, done, tmp_path: Path):
    """Whose statement was left out, or forged under another ledger's number."""
    changed = json.loads(json.dumps(done["document"]))
    changed["clients"]["n1"]["ledger"] = "0" * 32
    (tmp_path / "c.json").write_text(json.dumps(changed))
    code, out, _ = call("certificate", "verify", tmp_path / "c.json", *done["ledgers"][2:4])
    assert code == 1 and "no statement is of this ledger" in out and "holds" not in out


def test_verify_without_keys_says_that_anybody_may_have_signed(call, done, tmp_path: Path):
    credentials = pytest.importorskip("fedsofim.deploy.credentials")
    (tmp_path / "keys").mkdir()
    signed = json.loads(json.dumps(done["document"]))
    for policy in done["nodes"]:
        public = credentials.node_key(tmp_path, policy.name)
        (tmp_path / "keys" / f"{policy.name}.pub").write_bytes(public)
        signed["clients"][policy.name] = certificate.statement(policy, tmp_path / "node.key")
        (tmp_path / "node.key").unlink()
    (tmp_path / "c.json").write_text(json.dumps(signed))
    code, out, _ = call("certificate", "verify", tmp_path / "c.json")
    assert code == 0 and "by a key that it names itself" in out and "signed by its node's key" not in out
    code, out, _ = call("certificate", "verify", tmp_path / "c.json", "--keys", tmp_path / "keys")
    assert code == 0 and "every statement is signed by its node's key" in out


def test_verify_of_nothing(mistake, done, tmp_path: Path):
    assert "no such file" in mistake("certificate", "verify", tmp_path / "none.json", *done["ledgers"])
    (tmp_path / "c.json").write_text("{")
    assert "not a certificate" in mistake("certificate", "verify", tmp_path / "c.json", *done["ledgers"])
    assert "no ledger" in mistake("certificate", "verify", done["certificate"], "--ledger", tmp_path / "none.db")
    (tmp_path / "l.db").write_text("not a ledger" * 100)
    assert "l.db" in mistake("certificate", "verify", done["certificate"], "--ledger", tmp_path / "l.db")


def test_verify_with_a_folder_for_a_ledger(mistake, done, tmp_path: Path):
    assert str(tmp_path) in mistake("certificate", "verify", done["certificate"], "--ledger", tmp_path)


def test_verify_without_ledgers_says_what_it_rests_on(call, done):
    code, out, _ = call("certificate", "verify", done["certificate"])
    assert code == 0 and "holds: 3 clients, 0 of 3 recomputed from ledgers, all from what they state" in out
    assert "charged for 1 of 1 rounds: n0, n1, n2" in out.splitlines()


def test_verify_says_of_whom_an_older_version_signed_too_little(call):
    stored = Path(__file__).parents[1] / "golden" / "certificate-1" / "certificate.json"
    code, out, _ = call("certificate", "verify", stored)
    said = "not signed, in an older version's form: how many clients and rounds the job had for n0, n1, n2"
    assert code == 0 and said in out.splitlines() and "charged for" not in out


def test_verify_finds_statements_of_another_job_and_a_client_that_is_left_out(call, done, tmp_path: Path):
    document = done["document"]
    fewer = {**document, "clients": {n: s for n, s in document["clients"].items() if n != "n2"}}
    for forged, said in (({**document, "job": "f" * 32}, "n0: states nothing of job"), (fewer, "n1: the job had 3")):
        (tmp_path / "c.json").write_text(json.dumps(forged))
        code, out, _ = call("certificate", "verify", tmp_path / "c.json")
        assert code == 1 and said in out and "holds" not in out


def test_show(call, done):
    code, out, _ = call("certificate", "show", done["certificate"])
    assert code == 0
    assert out.strip() == certificate.readable(done["document"]).strip()


def test_a_nodes_own_ledger(call, mistake, done, tmp_path: Path):
    policy = done["nodes"][0].data.parent / "policy.toml"
    code, out, _ = call("ledger", "show", "--policy", policy)
    assert code == 0
    assert "spent 0.5 of 1" in out
    code, out, _ = call("ledger", "show", "--policy", policy, "--json")
    assert json.loads(out)["epsilon"] == pytest.approx(0.5, rel=1e-6)
    assert "no such policy file" in mistake("ledger", "show", "--policy", tmp_path / "none.toml")
