"""DP-FedAdam: Adam on the averaged noisy gradient, or on the pseudo-gradients of K local steps. K·T releases.

The two forms of Adam are told apart in _adaptive.py, pseudo-gradients are in _local.py.
"""

from fedsofim.core.method import Method, remembered
from fedsofim.methods._adaptive import adaptive_method, scale_by_adaptive


@remembered
def fedadam(
    lr: float | None = None,
    beta1: float = 0.9,
    beta2: float = 0.99,
    tau: float = 1e-3,
    bias_corrected: bool = True,
    local_steps: int = 1,
    client_lr: float | None = None,
    clip_quantile: float | None = None,
) -> Method:
    """Adam at the server; a step of None is automatic. bias_corrected=False is Reddi et al.'s form (v_0 = tau²)."""
    scale = scale_by_adaptive("adam", beta1=beta1, beta2=beta2, tau=tau, bias_corrected=bias_corrected)
    local = {"local_steps": local_steps, "client_lr": client_lr, "clip_quantile": clip_quantile}
    return adaptive_method("fedadam", lr, scale, **local)


#: Numbers that touch no price: a sweep may pass them in (simulation/sweep.py).
SWEPT = ("lr", "beta1", "beta2", "tau", "client_lr")

#: Settings behind the published ResNet-20 tables, by epsilon.
PRESETS = {
    "paper-resnet20": {
        0.5: {"lr": 0.02, "beta1": 0.8, "beta2": 0.8, "tau": 0.1},
        1.0: {"lr": 0.05, "beta1": 0.9, "beta2": 0.999, "tau": 0.05},
        5.0: {"lr": 0.1, "beta1": 0.9, "beta2": 0.9999, "tau": 0.01},
        10.0: {"lr": 0.05, "beta1": 0.95, "beta2": 0.9999, "tau": 1e-5},
    }
}
