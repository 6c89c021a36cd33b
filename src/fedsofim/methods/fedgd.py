"""DP-FedGD: gradient descent on the mean of noisy clipped gradients, theta -= eta·G. T releases."""

from fedsofim.core.adaptive_clip import adaptive_clip
from fedsofim.core.method import Method, remembered, server_method
from fedsofim.methods._steps import check_steps, gradient_step, measured, scale_by_step


@remembered
def fedgd(lr: float | None = None, clip_quantile: float | None = None) -> Method:
    """Gradient descent on the averaged noisy gradient; lr None is automatic."""
    check_steps(lr=lr)
    method = server_method("fedgd", measured(lambda facts: scale_by_step(lr, lambda d: gradient_step(facts, d))))
    return method if clip_quantile is None else adaptive_clip(method, clip_quantile)


#: Numbers that touch no price: a sweep may pass them in (simulation/sweep.py).
SWEPT = ("lr",)

#: Behind the published tables.
PRESETS = {"paper-resnet20": {"lr": 0.1}}
