"""Nodes that sum securely, and jobs whose preparation a test chooses: what the tests of prepared jobs share."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedsofim.core.preparation import Step
from fedsofim.data.partition import Split
from fedsofim.deploy import job_state
from fedsofim.deploy.policy import Policy, read_policy
from fedsofim.deploy.secure_sum import new_key
from fedsofim.recipes import Choices, Situation, choose
from nodes import SMALL, make_nodes


def introduced(policies: list[Policy], trusted: int) -> list[Policy]:
    """The same nodes with each other's mask keys, as if their operators had met."""
    public = {p.name: new_key(p.ledger.parent / "mask.key") for p in policies}
    out = []
    for policy in policies:
        path = policy.ledger.parent / "policy.toml"
        peers = "".join(f'{name} = "{key}"\n' for name, key in public.items() if name != policy.name)
        text = path.read_text().replace("[budget]", 'mask_key = "mask.key"\n\n[budget]')
        path.write_text(f"{text}secure_sum_min_clients = {trusted}\n\n[peers]\n{peers}")
        out.append(read_policy(path))
    return out


def summing_nodes(folder: Path, trusted: int = 3, data: Split = SMALL, **changed: Any) -> list[Policy]:
    """One node for each client of a split, which may sum with the others."""
    return introduced(make_nodes(folder, data, **changed), trusted)


def prepare_by(monkeypatch: pytest.MonkeyPatch, *steps: Step) -> None:
    """From here on every recipe chooses these steps."""

    def chosen(recipe: str, situation: Situation) -> Choices:
        return replace(choose(recipe, situation), preparation=steps)

    monkeypatch.setattr(job_state, "choose", chosen)
    monkeypatch.setattr(job_state, "plan_of", job_state.plan_of.__wrapped__)  # nothing kept of other tests
    monkeypatch.setattr("fedsofim.deploy.server.plan_of", job_state.plan_of)
