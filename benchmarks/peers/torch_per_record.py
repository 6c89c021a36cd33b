"""Per-record gradients by torch.func, client by client: the way the method's authors compute them, not their code."""

import torch  # pyright: ignore[reportMissingImports]
from torch.func import grad, vmap  # pyright: ignore[reportMissingImports]
from torch_parts import tensors
from turns import read_problem, serve, sofim_step


def record_loss(theta: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy((x @ theta[:-1] + theta[-1])[None], y[None])


def clipped_sum(theta: torch.Tensor, x: torch.Tensor, y: torch.Tensor, clip: float) -> torch.Tensor:
    """Every record's gradient is formed, clipped and added up."""
    gradients = vmap(grad(record_loss), in_dims=(None, 0, 0))(theta, x, y)
    norms = gradients.flatten(1).norm(dim=1)
    return (gradients * (clip / norms.clamp(min=clip))[:, None, None]).sum(dim=0)


def main() -> None:
    problem = read_problem()
    xs, ys = tensors(problem)
    state = [torch.from_numpy(problem.theta), torch.zeros(problem.theta.shape)]

    def upload(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        total = clipped_sum(state[0], x, y, problem.clip)
        return (total + problem.std * torch.randn(total.shape)) / len(y)

    def one_round() -> None:
        mean = torch.stack([upload(x, y) for x, y in zip(xs, ys, strict=True)]).mean(dim=0)
        state[:] = sofim_step(problem, mean, state[1], state[0])

    sums = torch.stack([clipped_sum(state[0], x, y, problem.clip) for x, y in zip(xs, ys, strict=True)])
    serve(f"torch {torch.__version__}", sums.numpy(), one_round)


if __name__ == "__main__":
    main()
