"""`fedsofim node check`: everything that is wrong before a node joins, in sentences, and what is left of the budget."""

import socket
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from fedsofim.deploy import credentials
from fedsofim.deploy.lines import epsilon_of_lines
from fedsofim.deploy.node import answer
from fedsofim.deploy.policy import Policy
from fedsofim.deploy.readiness import Finding, findings, rounds_left
from ledgers import line
from nodes import asked, write_records


def found(
    policy: Policy, superlink: str | None = None, ca: Path | None = None, key: Path | None = None
) -> list[Finding]:
    return list(findings(policy.data.parent / "policy.toml", superlink, ca, key))


def wrong(*a: object, **k: object) -> str:
    (text,) = (text for right, text in found(*a, **k) if not right)  # type: ignore[arg-type]
    return text


def test_a_node_that_is_ready(nodes: list[Policy]):
    seen = found(nodes[1])
    assert all(right for right, _ in seen)
    text = "\n".join(text for _, text in seen)
    assert "policy of n1" in text and "20 records of 3 features" in text and "0 entries" in text
    assert "more releases at noise multiplier 10" in text


def test_everything_that_is_wrong_is_said_at_once(nodes: list[Policy], tmp_path: Path):
    nodes[0].data.unlink()
    nodes[0].ledger.unlink()
    (tmp_path / "node.key").write_text("no key")
    (tmp_path / "ca.crt").write_text("no certificate")
    texts = [
        text for right, text in found(nodes[0], "127.0.0.1:1", tmp_path / "ca.crt", tmp_path / "node.key") if not right
    ]
    wanted = ["no such file", "there is no ledger", "key cannot be read", "certificate cannot be read", "127.0.0.1:1"]
    for text, said in zip(texts, wanted, strict=True):
        assert said in text


def test_a_policy_that_cannot_be_read_is_all_that_is_said(nodes: list[Policy]):
    (nodes[0].data.parent / "policy.toml").write_text("[node]\n")
    ((right, text),) = found(nodes[0])
    assert not right and "policy.toml" in text


def test_records_that_are_wrong_are_told_to_their_operator(nodes: list[Policy]):
    import numpy as np

    write_records(nodes[0].data.parent, np.ones((2, 3)), np.array([0, 77]))
    assert "labels lie outside" in wrong(nodes[0])


def test_a_key_that_others_can_read(nodes: list[Policy], tmp_path: Path):
    credentials.node_key(tmp_path, "n0")
    assert found(nodes[0], key=tmp_path / "node.key")[-1].right
    (tmp_path / "node.key").chmod(0o644)
    assert "chmod 600" in wrong(nodes[0], key=tmp_path / "node.key")


def test_a_server_that_is_not_the_federations(nodes: list[Policy], tmp_path: Path):
    credentials.authority(tmp_path)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        where = f"127.0.0.1:{server.getsockname()[1]}"
        assert found(nodes[0], where)[-1] == Finding(True, f"connection: {where} answers, not encrypted")


@pytest.mark.parametrize("multiplier", [5.0, 20.0])
def test_as_many_releases_are_left_as_the_cap_allows(nodes: list[Policy], multiplier: float):
    policy = replace(nodes[0], epsilon=1.0)
    for before in ([], [line(9.0)]):
        left = rounds_left(before, policy, multiplier)
        more = [replace(line(multiplier), coordinates=1)] * left
        assert epsilon_of_lines([*before, *more], policy.delta) <= 1.0
        assert epsilon_of_lines([*before, *more, more[0] if more else line(multiplier)], policy.delta) > 1.0


def test_what_was_spent_is_counted(nodes: list[Policy]):
    answer(nodes[0], asked(nodes))
    text = "\n".join(text for _, text in found(nodes[0]))
    assert "2 entries" in text and "epsilon 0 spent" not in text
