"""What is asked of a plan, checked before anything is read: an error says what was wrong and what is expected."""

import warnings
from collections.abc import Sequence
from typing import Any, Literal, get_args

from fedsofim.core.audit import Program
from fedsofim.core.budget import Budget
from fedsofim.core.budgets import AnyBudget, Budgets
from fedsofim.core.method import Method
from fedsofim.core.participation import check_participants
from fedsofim.core.pooled import can_pool
from fedsofim.core.programs import made_by_all
from fedsofim.core.site import check_clip, check_sample
from fedsofim.core.weights import Weights
from fedsofim.errors import DataWarning, InputError, Refused, expect_whole, is_whole, one_of, shown
from fedsofim.protection import check_unit

Trust = Literal["local", "secure-sum"]


MOST_ROUNDS = 10**9  # they are counted in 32 bits


def check_run(sizes: Sequence[int], rounds: int, clip: float, batch_rate: float) -> None:
    expect_whole("rounds", rounds, 1)
    if rounds > MOST_ROUNDS:
        raise InputError(f"rounds is {shown(rounds)}; expected at most {MOST_ROUNDS}")
    check_clip(clip)
    check_sample("batch_rate", batch_rate)
    if len(sizes) == 0 or not all(is_whole(s) and s >= 1 for s in sizes):
        raise InputError(f"the client sizes are {shown(sizes)}; expected whole numbers, each at least 1")


def check_trust(
    method: Method, clients: int, trust: str, weights: str, min_clients: int | None, participants: int | None
) -> None:
    """Who sees what, and with whom a sum can go on."""
    one_of("trust", trust, get_args(Trust))
    one_of("weights", weights, get_args(Weights))
    check_participants(participants, clients)
    if min_clients is None:
        return
    expect_whole("min_clients", min_clients, 1)
    if trust != "secure-sum":
        raise InputError("min_clients is for secure sums: under local trust each client's noise is all its own")
    if participants is not None:
        raise InputError("min_clients and participants: a sum that can do without some is one of all; give one of them")
    if not clients < 2 * min_clients <= 2 * clients:  # or two sums over clients of one round could differ
        raise InputError(
            f"min-clients is {min_clients}; a secure sum of {clients} clients needs more than half of them, "
            f"{clients // 2 + 1} to {clients}"
        )


def check_client_rate(
    method: Method, rate: float, trust: str, min_clients: int | None, participants: int | None, batch_rate: float
) -> None:
    """Can clients take part by chance (drawn_clients.py)?"""
    check_sample("client_rate", rate)
    if rate == 1:
        return
    if trust != "secure-sum":
        raise Refused(
            "client_rate under trust 'local': everyone would see who answers, so a draw hides nothing. Use trust "
            "'secure-sum', or participants, which are asked in turn"
        )
    if not can_pool(method):
        raise Refused(
            f"{method.name} with a client_rate: a client's noise is in its own steps, so one that is absent could not "
            "send it alone, and would be seen to be. Use a method of one gradient a round (fedgd, fedadam, fedyogi, "
            "fedsofim, fedfc), or participants"
        )
    if participants is not None or batch_rate < 1 or min_clients is not None:
        raise InputError("client_rate stands alone: no participants, batch_rate or min_clients beside it are priced")


def check_noise_of_all(method: Method, program: Program, trust: str) -> None:
    """Noise that all clients make together (banded.py) is for sums that nobody sees a part of."""
    if made_by_all(program) and trust != "secure-sum":
        raise Refused(
            f"{method.name} with banded noise under trust 'local': noise can be taken back only in rounds to which all "
            "clients add some, asked or not. Use trust 'secure-sum', or noise='tree'"
        )


def check_units(method: Method, unit: str, places: int | None, trust: str) -> None:
    """Can so much be protected as one?"""
    check_unit(unit)
    if (places is None) != (unit == "record"):
        raise InputError(
            f"the unit is a {unit} and its places are {shown(places)}; expected a number unless it is a record"
        )
    if places is not None:
        expect_whole("places", places, 1)
    if unit == "client" and (trust != "secure-sum" or not can_pool(method) or method.setup is not None):
        raise Refused(
            f"{method.name} under trust '{trust}' cannot protect whole clients: each would have to hide its own upload "
            "in noise for all of it. Use trust 'secure-sum' and a method of one gradient a round (fedgd, fedadam, "
            "fedyogi, fedsofim), or protect persons"
        )


def check_budget(budget: Any) -> None:
    if not isinstance(budget, Budget | Budgets):
        raise InputError(
            f"the budget is {shown(budget)}; expected fs.Budget(epsilon, delta), fs.Budgets([...]) with one for each "
            "client, or fs.NO_PRIVACY to train without noise"
        )


#: Above this epsilon the bound on an attacker's odds, e^epsilon, is far beyond what any attacker can gain.
LOOSE = 100.0


def warn_of_loose(budget: AnyBudget, records: int) -> None:
    """Warn of a budget that promises next to nothing for so many records, or other units of protection."""
    if not budget.private:
        return
    if budget.delta * records >= 1:
        warnings.warn(
            f"delta is {budget.delta:g} for {records} records: publishing some of them outright would satisfy it. "
            f"Choose a delta well below 1/records ({1 / records:.0e})",
            DataWarning,
            stacklevel=3,
        )
    if budget.epsilon > LOOSE:
        warnings.warn(
            f"epsilon is {budget.epsilon:g}, a bound that promises nothing in practice. Choose 10 or less, or say "
            "NO_PRIVACY (--epsilon no-privacy)",
            DataWarning,
            stacklevel=3,
        )


def check_own_budgets(budget: Any, made_by_all: bool, client_rate: float) -> None:
    """What is not priced for clients with budgets of their own."""
    if isinstance(budget, Budgets) and (made_by_all or client_rate < 1):
        raise Refused(
            "each client has a budget of its own, and the noise is made by all of them together or clients take part "
            "by chance: what each then spends is not priced here. Give one budget for all"
        )


def check_noise(budget: Any, multiplier: float | None) -> None:
    check_budget(budget)
    if multiplier is not None and isinstance(budget, Budgets):
        raise InputError(
            f"one noise multiplier, {shown(multiplier)}, for clients with budgets of their own; give one of them"
        )
    if multiplier is not None and not budget.private:
        raise InputError(
            f"a noise multiplier of {shown(multiplier)} and {budget} contradict each other; give one of them"
        )
