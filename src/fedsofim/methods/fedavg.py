"""DP-FedAvg: K noisy local steps, then the server moves by the mean of the clients' moves. K·T releases.

y ← y - η_c·(S_i(y) + fresh noise)/|D_i|, K times from y = θ;  θ ← θ + η_s·mean(y_K - θ).
"""

from typing import Any

from fedsofim.core.door import Door, Facts
from fedsofim.core.method import Method, remembered
from fedsofim.core.trees import add
from fedsofim.methods._local import descend, one_step, steps_of
from fedsofim.methods._steps import check_count, check_steps, scaled


@remembered
def fedavg(local_steps: int = 5, client_lr: float | None = None, server_lr: float | None = None) -> Method:
    """Federated averaging with private local steps; a step size of None is automatic (both None is best)."""
    check_count(local_steps=local_steps)
    check_steps(client_lr=client_lr, server_lr=server_lr)
    if local_steps == 1:  # the same method, without the detour through each client's own y
        return one_step("fedavg", client_lr, server_lr)
    return many_steps(local_steps, client_lr, server_lr)


def many_steps(local_steps: int, client_lr: Any = None, server_lr: Any = None) -> Method:
    def client(door: Door, params: Any, state: Any, memory: Any) -> tuple[Any, Any]:
        eta_c, _ = steps_of(door.facts, params, local_steps, client_lr, server_lr)
        return descend(door, params, eta_c, local_steps), memory

    def server(mean: Any, state: Any, params: Any, facts: Facts) -> tuple[Any, Any]:
        _, eta_s = steps_of(facts, params, local_steps, client_lr, server_lr)
        return add(params, scaled(eta_s, mean)), state

    return Method("fedavg", client, server)


#: Numbers that touch no price: a sweep may pass them in (simulation/sweep.py).
SWEPT = ("client_lr", "server_lr")

#: Behind the published ResNet-20 tables: one local step, which makes it DP-FedGD.
PRESETS = {"paper-resnet20": {"local_steps": 1, "client_lr": 0.1, "server_lr": 1.0}}
