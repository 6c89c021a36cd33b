"""Mask keys are compared before anything is charged: a mistyped one is named, and nobody has spent anything."""

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from fedsofim.deploy.mask_keys import peer_mask_keys
from fedsofim.deploy.node import answer, consider, hello
from fedsofim.deploy.policy import Policy, read_policy
from fedsofim.deploy.readiness import findings
from fedsofim.deploy.secure_sum import new_key
from fedsofim.deploy.wire import Job
from fedsofim.errors import InputError, Refused
from node_sums import order_of_five, summing_nodes
from nodes import charges, start

ORDER = order_of_five(clients=3, min_clients=None)


def policy_file(node: Policy) -> Path:
    return node.ledger.parent / "policy.toml"


def mistyped(node: Policy, peer: str, key: str) -> Policy:
    """The node with another key for a peer."""
    path = policy_file(node)
    text = path.read_text().replace(f'"{dict(node.peers)[peer]}"', f'"{key}"')
    path.write_text(text)
    return read_policy(path)


def test_a_job_among_nodes_that_know_each_other_is_allowed(tmp_path: Path):
    nodes = summing_nodes(tmp_path)
    job = start(nodes, ORDER).job
    assert set(job.mask_keys) == {"n0", "n1", "n2"} and len(set(job.mask_keys.values())) == 3
    assert all(consider(node, job)["epsilon"] > 0 for node in nodes)


def test_a_mistyped_key_of_a_peer_is_named_and_nothing_is_charged(tmp_path: Path):
    nodes = summing_nodes(tmp_path)
    nodes[0] = mistyped(nodes[0], "n2", new_key(tmp_path / "another.key"))
    now = start(nodes, ORDER)
    for ask in (lambda: consider(nodes[0], now.job), lambda: answer(nodes[0], now.request())):
        with pytest.raises(Refused, match=r"the mask key of n2 in this node's \[peers\] is not the one that n2 uses"):
            ask()
    assert charges(nodes[0]) == 0


@pytest.mark.parametrize("key", ["k3Zr...=", "", "AAAA", "not base64 at all"])
def test_a_key_that_is_none_is_named(tmp_path: Path, key: str):
    nodes = summing_nodes(tmp_path)
    now = start(nodes, ORDER)
    node = mistyped(nodes[0], "n1", key)
    with pytest.raises(InputError, match=r"\[peers\] has no mask key for n1"):
        consider(node, now.job)
    assert not all(finding.right for finding in findings(policy_file(node), None, None, None))


def test_a_server_cannot_bring_other_keys(tmp_path: Path):
    """Whatever the job says, a node goes by its operator's policy."""
    nodes = summing_nodes(tmp_path)
    job = start(nodes, ORDER).job
    for keys in ({}, {**job.mask_keys, "n1": job.mask_keys["n2"]}, {**job.mask_keys, "n0": "0" * 64}):
        with pytest.raises(Refused, match="mask key"):
            consider(nodes[0], Job.read(replace(job, id="another", mask_keys=keys).text()))


def test_a_mask_key_that_is_gone_is_said_in_hello_and_by_check(tmp_path: Path):
    nodes = summing_nodes(tmp_path)
    assert len(hello(nodes[0])["mask_key"]) == 64
    assert all(finding.right for finding in findings(policy_file(nodes[0]), None, None, None))
    assert set(peer_mask_keys(nodes[0])) == {"n1", "n2"}
    assert nodes[0].mask_key is not None
    nodes[0].mask_key.unlink()
    with pytest.raises(InputError, match="mask key cannot be read"):
        hello(nodes[0])
    said = [finding.text for finding in findings(policy_file(nodes[0]), None, None, None) if not finding.right]
    assert len(said) == 1 and "mask key cannot be read" in said[0]
