"""Nodes that sum securely, and jobs whose preparation a test chooses: what the tests of prepared jobs share."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedsofim.core.preparation import Step
from fedsofim.data.partition import Split
from fedsofim.deploy import job_state
from fedsofim.deploy.order import Order
from fedsofim.deploy.policy import Policy, read_policy
from fedsofim.deploy.secure_sum import new_key
from fedsofim.deploy.survivors import AGREE, NeverRevealed, agree, reveal
from fedsofim.deploy.unmasking import Exchange, Said
from fedsofim.errors import InputError, Refused
from fedsofim.recipes import Choices, Situation, choose
from nodes import SMALL, make_nodes
from toy import make_toy

FIVE = make_toy(sizes=(7, 20, 12, 9, 15), features=3)


def order_of_five(**changed: Any) -> Order:
    """Two rounds of a secure sum over five clients that can do with three of them."""
    usual: dict[str, Any] = {"recipe": "paper", "method": "fedgd", "settings": (("lr", "1.0"),), "rounds": 2}
    return Order(**(usual | {"trust": "secure-sum", "clients": 5, "min_clients": 3} | changed))


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


def helping(policies: Sequence[Policy], away: Container[str] = ()) -> Exchange:
    """How a coordinator reaches these nodes to open a sum, in one process; those away do not answer."""

    def said(policy: Policy, what: str, question: Said) -> Said:
        try:
            if what == AGREE:
                return Said(*agree(policy, question.facts["digest"], question.facts["present"]))
            return Said({}, reveal(policy, question.facts["digest"], question.facts["present"], question.arrays))
        except (Refused, InputError) as error:
            return Said({"refused": str(error), "never": isinstance(error, NeverRevealed)}, {})

    def exchange(what: str, questions: Mapping[str, Said], enough: int) -> dict[str, Said]:
        return {p.name: said(p, what, questions[p.name]) for p in policies if p.name not in away}

    return exchange
