"""DP-FedGD: gradient descent on the mean of noisy clipped gradients, theta -= eta·G. T releases."""

import optax

from fedsofim.round import Method, server_method


def fedgd(lr: float = 0.1) -> Method:
    """Gradient descent on the averaged noisy gradient."""
    return server_method("fedgd", optax.sgd(lr))
