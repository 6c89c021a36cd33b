"""Commands for a node's operator: check before joining, make a ledger once, replace keys; mistakes are one line."""

from pathlib import Path

import pytest


def test_a_node_is_checked_before_it_joins(call, policy: Path):
    code, out, _ = call("node", "check", "--policy", policy)
    assert code == 0
    assert all(line.startswith("ok ") for line in out.splitlines())
    (policy.parent / "records.npz").unlink()
    code, out, _ = call("node", "check", "--policy", policy, "--superlink", "127.0.0.1:1")
    assert code == 1
    assert [line.split(":")[0] for line in out.splitlines() if line.startswith("WRONG")] == [
        f"WRONG  {policy.parent / 'records.npz'}", "WRONG  127.0.0.1"
    ]  # fmt: skip


def test_a_ledger_is_made_once_and_adopted_elsewhere(call, mistake, policy: Path, monkeypatch, tmp_path: Path):
    assert "never overwritten" in mistake("ledger", "create", "--policy", policy)
    monkeypatch.setenv("FEDSOFIM_STATE", str(tmp_path / "another machine"))
    assert "fedsofim ledger adopt" in mistake("ledger", "show", "--policy", policy)
    assert call("ledger", "adopt", "--policy", policy)[0] == 0
    assert "nothing is to be done" in mistake("ledger", "adopt", "--policy", policy)
    policy.write_text(policy.read_text().replace("ledger.db", "new.db"))
    code, out, _ = call("ledger", "create", "--policy", policy)
    assert code == 0 and "nothing is spent" in out


def test_keys_are_replaced_only_if_that_is_said(call, mistake, tmp_path: Path):
    pytest.importorskip("cryptography")
    for command, file in (("node-key", "node.key"), ("mask-key", "mask.key")):
        where = ("--folder", tmp_path) if command == "node-key" else ("--out", tmp_path / "mask.key")
        assert call("federation", command, "a", *where)[0] == 0
        first = (tmp_path / file).read_bytes()
        assert "--replace" in mistake("federation", command, "a", *where)
        assert call("federation", command, "a", *where, "--replace")[0] == 0
        assert (tmp_path / file).read_bytes() != first
        (aside,) = tmp_path.glob(f"{file}.*")
        assert aside.read_bytes() == first
