"""Non-private softmax regression: what a linear head can reach on a dataset's features."""

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax

from fedsofim.data.dataset import Dataset


def probe(data: Dataset, l2: float = 1e-5, steps: int = 200) -> float:
    """Test accuracy of softmax regression with bias, fitted by L-BFGS on the training part."""
    x, x_test = (np.c_[part, np.ones(len(part))].astype(np.float64) for part in (data.x_train, data.x_test))
    wanted = np.eye(data.classes)[data.y_train]

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        w = flat.reshape(x.shape[1], data.classes)
        log_p = log_softmax(x @ w, axis=1)
        gradient = x.T @ (np.exp(log_p) - wanted) / len(x) + 2 * l2 * w
        return float(-(wanted * log_p).sum() / len(x) + l2 * (w**2).sum()), gradient.ravel()

    start = np.zeros(x.shape[1] * data.classes)
    fit = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": steps})
    return float(np.mean((x_test @ fit.x.reshape(x.shape[1], -1)).argmax(axis=1) == data.y_test))
