"""NumPy, client by client, in closed form: what one would write without a library."""

import numpy as np
from turns import Problem, read_problem, serve, sofim_step


def clipped_sum(theta: np.ndarray, x: np.ndarray, y: np.ndarray, clip: float) -> np.ndarray:
    """A record's gradient is [x;1] ⊗ r, r = softmax - onehot, so its norm is |[x;1]|·|r|."""
    r = x @ theta[:-1] + theta[-1]
    r -= r.max(axis=1, keepdims=True)
    np.exp(r, out=r)
    r /= r.sum(axis=1, keepdims=True)
    r[np.arange(len(y)), y] -= 1
    norm = np.sqrt((np.einsum("ij,ij->i", x, x) + 1) * np.einsum("ij,ij->i", r, r))
    r *= (clip / np.maximum(norm, clip))[:, None]
    return np.concatenate([(r.T @ x).T, r.sum(axis=0)[None]])


def upload(problem: Problem, theta: np.ndarray, client: int, random: np.random.Generator) -> np.ndarray:
    """What one client sends: the noisy mean of its clipped gradients."""
    x, y = problem.x[client], problem.y[client]
    noise = random.standard_normal(theta.shape, np.float32)
    return (clipped_sum(theta, x, y, problem.clip) + np.float32(problem.std) * noise) / len(y)


def main() -> None:
    problem, random = read_problem(), np.random.default_rng(0)
    state = [problem.theta, np.zeros_like(problem.theta)]

    def one_round() -> None:
        mean = np.mean([upload(problem, state[0], i, random) for i in range(len(problem.x))], axis=0)
        state[:] = sofim_step(problem, mean, state[1], state[0])

    sums = [clipped_sum(problem.theta, x, y, problem.clip) for x, y in zip(problem.x, problem.y, strict=True)]
    serve(f"numpy {np.__version__}", np.stack(sums), one_round)


if __name__ == "__main__":
    main()
