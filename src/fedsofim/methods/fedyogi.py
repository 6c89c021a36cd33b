"""DP-FedYogi: Yogi on the averaged noisy gradient. T releases. The two forms are told apart in _adaptive.py."""

from fedsofim.core.method import Method, remembered
from fedsofim.methods._adaptive import adaptive_method


@remembered
def fedyogi(
    lr: float | None = None, beta1: float = 0.9, beta2: float = 0.99, tau: float = 1e-3, bias_corrected: bool = True
) -> Method:
    """Yogi at the server; lr None is automatic. bias_corrected=False is Reddi et al.'s form (v_0 = tau²)."""
    return adaptive_method("fedyogi", "yogi", lr, beta1, beta2, tau, bias_corrected)


#: Settings behind the published ResNet-20 tables, by epsilon.
PRESETS = {
    "paper-resnet20": {
        0.5: {"lr": 0.02, "beta1": 0.9, "beta2": 0.9, "tau": 0.1},
        1.0: {"lr": 0.2, "beta1": 0.9, "beta2": 0.9, "tau": 0.05},
        5.0: {"lr": 0.05, "beta1": 0.9, "beta2": 0.9, "tau": 0.01},
        10.0: {"lr": 0.05, "beta1": 0.95, "beta2": 0.9, "tau": 1e-5},
    }
}
