"""DP-AdaFedProx: DP-FedAvg with a pull towards θ that fades over the rounds. K·T releases.

y ← y - η_c·((S_i(y) + fresh noise)/|D_i| + mu_t·(y - θ)),  mu_t = max(mu_0/sqrt(t), 0.1·mu_0), t = 1, 2, ...
The pull reads no data, so it is free. A rule that reads a client's loss would be a release; there is none.
"""

from typing import Any

import jax.numpy as jnp

from fedsofim.core.door import Door
from fedsofim.core.method import Method, remembered
from fedsofim.core.trees import subtract
from fedsofim.methods._local import descend, one_step, steps_of
from fedsofim.methods._steps import check_count, check_not_negative, check_steps, scaled
from fedsofim.methods.fedavg import many_steps as fedavg_steps


@remembered
def adafedprox(
    local_steps: int = 5, client_lr: float | None = None, server_lr: float | None = None, mu0: float = 0.05
) -> Method:
    """Local steps with a fading proximal pull; a step size of None is automatic."""
    check_count(local_steps=local_steps)
    check_steps(client_lr=client_lr, server_lr=server_lr)
    check_not_negative(mu0=mu0)
    if local_steps == 1:  # y is θ, so nothing pulls
        return one_step("adafedprox", client_lr, server_lr)
    return many_steps(local_steps, client_lr, server_lr, mu0)


def many_steps(local_steps: int, client_lr: Any = None, server_lr: Any = None, mu0: Any = 0.05) -> Method:
    def client(door: Door, params: Any, state: Any, memory: Any) -> tuple[Any, Any]:
        eta_c, _ = steps_of(door.facts, params, local_steps, client_lr, server_lr)
        pull = mu0 * jnp.maximum((door.round + 1).astype(jnp.float32) ** -0.5, 0.1)
        return descend(door, params, eta_c, local_steps, lambda y: scaled(pull, subtract(y, params))), memory

    return fedavg_steps(local_steps, client_lr, server_lr)._replace(name="adafedprox", client=client)


#: Numbers that touch no price: a sweep may pass them in (simulation/sweep.py).
SWEPT = ("client_lr", "server_lr", "mu0")

#: Settings behind the published ResNet-20 tables, by epsilon.
PRESETS = {
    "paper-resnet20": {
        0.5: {"local_steps": 1, "client_lr": 0.1, "server_lr": 0.8, "mu0": 0.1},
        1.0: {"local_steps": 5, "client_lr": 0.1, "server_lr": 1.0, "mu0": 0.05},
        5.0: {"local_steps": 5, "client_lr": 0.1, "server_lr": 1.0, "mu0": 0.01},
        10.0: {"local_steps": 5, "client_lr": 0.1, "server_lr": 1.0, "mu0": 0.01},
    }
}
