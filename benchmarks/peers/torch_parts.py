"""What the peers on PyTorch share: the problem as tensors, the head as a module, and its gradient in our layout."""

import torch  # pyright: ignore[reportMissingImports]
from turns import Problem


def tensors(problem: Problem) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    return [torch.from_numpy(x) for x in problem.x], [torch.from_numpy(y).long() for y in problem.y]


def head(theta: torch.Tensor) -> torch.nn.Linear:
    """theta (p+1, C), the bias last, as a linear layer."""
    layer = torch.nn.Linear(theta.shape[0] - 1, theta.shape[1])
    load(layer, theta)
    return layer


@torch.no_grad()
def load(layer: torch.nn.Linear, theta: torch.Tensor) -> None:
    layer.weight.copy_(theta[:-1].T)
    layer.bias.copy_(theta[-1])


def joined(weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """The layer's two gradients as one array shaped like theta."""
    return torch.cat([weight.T, bias[None]])
