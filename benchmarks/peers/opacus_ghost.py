"""Opacus: ghost clipping, one full batch per client, its own optimizer adding the noise."""

import opacus  # pyright: ignore[reportMissingImports]
import torch  # pyright: ignore[reportMissingImports]
from opacus.grad_sample import GradSampleModuleFastGradientClipping  # pyright: ignore[reportMissingImports]
from opacus.optimizers import DPOptimizerFastGradientClipping  # pyright: ignore[reportMissingImports]
from opacus.utils.fast_gradient_clipping_utils import (  # pyright: ignore[reportMissingImports]
    DPLossFastGradientClipping,
)
from torch_parts import head, joined, load, tensors
from turns import Problem, read_problem, serve, sofim_step


class Clipper:
    """One set of Opacus objects that every client of the simulation uses in turn."""

    def __init__(self, problem: Problem, noise_multiplier: float) -> None:
        self.layer = head(torch.from_numpy(problem.theta))
        self.module = GradSampleModuleFastGradientClipping(
            self.layer,
            max_grad_norm=problem.clip,  # type: ignore[arg-type]
            use_ghost_clipping=True,
            loss_reduction="sum",
        )
        self.optimizer = DPOptimizerFastGradientClipping(
            torch.optim.SGD(self.module.parameters(), lr=1.0), noise_multiplier=noise_multiplier,
            max_grad_norm=problem.clip, expected_batch_size=None, loss_reduction="sum",
        )  # fmt: skip
        criterion = torch.nn.CrossEntropyLoss(reduction="sum")
        self.loss = DPLossFastGradientClipping(self.module, self.optimizer, criterion, loss_reduction="sum")

    def noisy_sum(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.optimizer.zero_grad()
        self.loss(self.module(x), y).backward()
        self.optimizer.pre_step()  # adds the noise; the step itself is the server's
        weight, bias = self.layer.weight.grad, self.layer.bias.grad
        assert weight is not None and bias is not None
        return joined(weight, bias)


def main() -> None:
    problem = read_problem()
    x, y = tensors(problem)
    quiet, noisy = Clipper(problem, 0.0), Clipper(problem, problem.std / problem.clip)
    state = [torch.from_numpy(problem.theta), torch.zeros(problem.theta.shape)]

    def one_round() -> None:
        load(noisy.layer, state[0])
        mean = torch.stack([noisy.noisy_sum(a, b) / len(b) for a, b in zip(x, y, strict=True)]).mean(dim=0)
        state[:] = sofim_step(problem, mean, state[1], state[0])

    sums = torch.stack([quiet.noisy_sum(a, b) for a, b in zip(x, y, strict=True)])
    serve(f"opacus {opacus.__version__}, torch {torch.__version__}", sums.numpy(), one_round)


if __name__ == "__main__":
    main()
