"""What each client counts in the mean of all: w_i, adding up to 1.

`uniform`, 1/n, is the paper's; `size`, |D_i|/N, lets every record count alike; `quiet` has the least noise for given
sizes and budgets. With a_i = w_i/|D_i| and s_i the noise std that client i's budget asks for on its sum:

**Local trust.** The noise of the mean has variance Σ (a_i·s_i)² = Σ (w_i·s_i/|D_i|)². With v_i = (s_i/|D_i|)²,
Lagrange's condition on Σ w_i²·v_i under Σ w_i = 1 is 2·w_i·v_i = const, so

    w_i ∝ 1/v_i = (|D_i|/s_i)²,

the weights that average independent measurements by their precision; it is the only minimum, the sum being strictly
convex. The variance is then 1/Σ (|D_i|/s_i)².

**Secure sum.** One sum carries one noise, of std S. A record of client i moves the sum by 2c·a_i, so its budget asks
for S >= a_i·s_i: S = max_i a_i·s_i. For a given S the weights add up to Σ a_i·|D_i| <= S·Σ |D_i|/s_i, with equality
where every client is at its bound, a_i = S/s_i. So the least S with weights that add up to 1 is 1/Σ (|D_i|/s_i), at

    w_i ∝ |D_i|/s_i:

every client spends exactly its budget. Under any other weights some spend less than they would allow.

Only the noise is minimised. Where clients hold different records, weights that follow budgets move the mean towards
those who allow more: bias is paid for variance (docs/budgets.md has it measured).
"""

from typing import Literal

import numpy as np

Weights = Literal["uniform", "size", "quiet"]


def weights_of(kind: Weights, sizes: np.ndarray, stds: np.ndarray, shared: bool) -> np.ndarray:
    """w_i of every client; `stds` are s_i up to a common factor, `shared` is a secure sum.

    >>> weights_of("quiet", np.array([10.0, 10.0]), np.array([2.0, 1.0]), shared=False)
    array([0.2, 0.8])
    >>> weights_of("quiet", np.array([10.0, 20.0]), np.array([2.0, 1.0]), shared=True)
    array([0.2, 0.8])
    """
    if kind == "uniform":
        return np.full(len(sizes), 1 / len(sizes))
    if kind == "size":
        return sizes / sizes.sum()
    found = sizes / stds if shared else (sizes / stds) ** 2
    return found / found.sum()
