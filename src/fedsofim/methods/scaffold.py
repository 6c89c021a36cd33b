"""DP-SCAFFOLD: local steps corrected by control variates, so that clients do not drift apart. K·T releases.

y ← y - η_c·((S_i(y) + fresh noise)/|D_i| - c_i + c);  c_i' = c_i - c + (θ - y_K)/(K·η_c);
θ ← θ + η_s·mean(y_K - θ);  c ← c + (k/n)·mean(c_i' - c_i), means over the k of n that took part. Both uploads come from
the same K noisy sums: nothing more is released. A client keeps c_i, the server c.
"""

from typing import Any

from fedsofim.core.door import Door, Facts
from fedsofim.core.mechanisms import Independent, Mechanism, Mischarged
from fedsofim.core.method import Method, remembered
from fedsofim.core.trees import add, subtract, zeros
from fedsofim.methods._local import descend, steps_of
from fedsofim.methods._steps import check_count, check_steps, scaled, with_published

_NOTE = (
    "NOT AS CLAIMED: as published, the replace-one factor is counted twice; the noise is twice what the "
    "budget needs, and less than the budget is spent"
)


def _four_times(rounds: int) -> float:
    return 4.0 * rounds


@remembered
def scaffold(
    local_steps: int = 5, client_lr: float | None = None, server_lr: float | None = None, as_published: bool = False
) -> Method:
    """Local steps with control variates; a step size of None is automatic."""
    check_count(local_steps=local_steps)
    check_steps(client_lr=client_lr, server_lr=server_lr)
    noise: Mechanism = Mischarged(Independent(), _four_times) if as_published else Independent()

    def client(door: Door, params: Any, c: Any, c_i: Any) -> tuple[Any, Any]:
        eta_c, _ = steps_of(door.facts, params, local_steps, client_lr, server_lr)
        drift = subtract(c, c_i)
        move = descend(door, params, eta_c, local_steps, lambda y: drift, noise)
        change = subtract(scaled(-1 / (local_steps * eta_c), move), c)  # c_i' - c_i
        return (move, change), add(c_i, change)

    def server(mean: Any, c: Any, params: Any, facts: Facts) -> tuple[Any, Any]:
        _, eta_s = steps_of(facts, params, local_steps, client_lr, server_lr)
        here = 1 / facts.groups  # of the clients: c is the mean of everyone's c_i, also of those who were not asked
        return add(params, scaled(eta_s, mean[0])), add(c, scaled(here, mean[1]))

    return Method("scaffold", client, server, init=zeros, memory=zeros, note=_NOTE if as_published else "")


#: Numbers that touch no price: a sweep may pass them in (simulation/sweep.py).
SWEPT = ("client_lr", "server_lr")

#: Settings behind the published ResNet-20 tables, by epsilon: at true cost, and with the published noise.
PRESETS = with_published(
    {
        0.5: {"local_steps": 1, "client_lr": 0.2, "server_lr": 0.5},
        1.0: {"local_steps": 5, "client_lr": 0.1, "server_lr": 0.5},
        5.0: {"local_steps": 7, "client_lr": 0.1, "server_lr": 0.5},
        10.0: {"local_steps": 7, "client_lr": 0.05, "server_lr": 1.0},
    }
)
