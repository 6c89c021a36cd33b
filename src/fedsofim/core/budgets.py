"""One budget for each client of a run: each has its own noise and its own ledger.

**What is promised.** A record of client i is exposed to (epsilon_i, delta_i) and no more, whatever the others have:
under local trust its upload carries noise for its own budget, and all else that anybody sees is computed from that
upload and from other clients' records, which do not change when this one does. So nothing composes across clients. For
all clients at once only the largest epsilon with the largest delta may be said.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fedsofim.core.budget import NO_PRIVACY, WITHOUT, Budget, budget_of
from fedsofim.errors import InputError, shown

REST = "rest"  # in the short form: all other clients, at the common epsilon


def _kind(budget: Any) -> str:
    """What stands in place of a budget, by its type: a list may hold anything."""
    return repr(budget) if isinstance(budget, Budget) else f"a {type(budget).__name__}"


@dataclass(frozen=True)
class Budgets:
    """A budget for each client, in the order of the clients.

    >>> b = Budgets.of([0.5, 5, 5])
    >>> b.epsilon, str(b)
    (5.0, 'each client its own: epsilon 0.5 (1 client), 5 (2 clients) at delta 1e-05')
    """

    each: Sequence[Budget]

    def __post_init__(self) -> None:
        given = tuple(self.each) if isinstance(self.each, Sequence) else (self.each,)
        for i, budget in enumerate(given):
            if not isinstance(budget, Budget) or not budget.private:
                raise InputError(
                    f"the budget of client {i} is {_kind(budget)}; expected fs.Budget(epsilon, delta) "
                    "with noise for every client. A run without noise has no budgets at all: fs.NO_PRIVACY"
                )
        if not given:
            raise InputError("there is no budget in the list; expected one for each client")
        object.__setattr__(self, "each", given)

    @staticmethod
    def of(epsilons: Sequence[float], delta: float = 1e-5) -> "Budgets":
        """Epsilons at one delta."""
        if isinstance(epsilons, str) or not isinstance(epsilons, Iterable):
            raise InputError(f"epsilons is {shown(epsilons)}; expected a list of numbers, one for each client")
        return Budgets([Budget(_epsilon(client, e), delta) for client, e in enumerate(epsilons)])

    @property
    def epsilon(self) -> float:
        """The largest of any client."""
        return max(b.epsilon for b in self.each)

    @property
    def delta(self) -> float:
        """The largest of any client."""
        return max(b.delta for b in self.each)

    @property
    def private(self) -> bool:
        return True

    def __str__(self) -> str:
        return f"each client its own: {in_groups([(b.epsilon, b.delta) for b in self.each])}"


def _epsilon(client: int, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # their text quotes the value
        raise InputError(f"the epsilon of client {client} is {shown(value)}; expected a number") from None


AnyBudget = Budget | Budgets


def in_groups(each: Sequence[tuple[float, float]]) -> str:
    """Pairs of epsilon and delta for people: equal ones together, smallest first.

    >>> in_groups([(5, 1e-5), (0.5, 1e-5), (5, 1e-5)])
    'epsilon 0.5 (1 client), 5 (2 clients) at delta 1e-05'
    """
    by_delta: dict[float, list[float]] = {}
    for epsilon, delta in each:
        by_delta.setdefault(delta, []).append(float(f"{epsilon:.6g}"))
    return "; ".join(f"epsilon {_counted(found)} at delta {delta:g}" for delta, found in sorted(by_delta.items()))


def _counted(epsilons: Sequence[float]) -> str:
    counts = Counter(epsilons)
    return ", ".join(f"{e:g} ({counts[e]} client{'s' * (counts[e] > 1)})" for e in sorted(counts))


def each_of(budget: AnyBudget, clients: int) -> tuple[Budget, ...]:
    """The budget of every client; an error if there are not as many as clients."""
    if isinstance(budget, Budget):
        return (budget,) * clients
    if len(budget.each) != clients:
        raise InputError(f"there are budgets for {len(budget.each)} clients, and {clients} clients; give one for each")
    return tuple(budget.each)


def simplest(budget: AnyBudget) -> AnyBudget:
    """Equal budgets are one budget."""
    if isinstance(budget, Budgets) and len(set(budget.each)) == 1:
        return budget.each[0]
    return budget


def read_epsilons(text: Any, common: Any, delta: float, clients: int) -> AnyBudget:
    """Epsilons as people write them, one for each client in turn: `0.1x5,rest` is 0.1 for the first five.

    `rest` stands for all clients that are left, at the common epsilon.

    >>> [b.epsilon for b in read_epsilons("0.1x2, 1, rest", 5.0, 1e-5, clients=5).each]
    [0.1, 0.1, 1.0, 5.0, 5.0]
    """
    found: list[Budget] = []
    items = [item.strip() for item in str(text).split(",")]
    for place, item in enumerate(items):
        if item == REST and place == len(items) - 1:
            found += [budget_of(common, delta)] * (clients - len(found))
        else:
            found += _item(item, delta)
    if len(found) != clients:
        raise InputError(f"the epsilons {shown(text)} are for {len(found)} clients, and there are {clients}; give one "
                         f"for each, or end with {REST} for all others")  # fmt: skip
    return simplest(Budgets(found))


def _item(item: str, delta: float) -> list[Budget]:
    """`0.5`, or `0.5x3` for three clients."""
    epsilon, times, count = item.partition("x")
    budget = NO_PRIVACY if epsilon.strip() == WITHOUT else budget_of(epsilon.strip(), delta)
    if times and not (count.strip().isdigit() and int(count) >= 1):
        raise InputError(f"{shown(item)} is no epsilon for so many clients; expected for example 0.5x3")
    return [budget] * (int(count) if times else 1)
