"""Opacus: ghost clipping of a network, one full batch per client, its own optimizer adding the noise."""

import opacus  # pyright: ignore[reportMissingImports]
import torch  # pyright: ignore[reportMissingImports]
from networks_problem import NetworkProblem, read_network, row
from opacus.grad_sample import GradSampleModuleFastGradientClipping  # pyright: ignore[reportMissingImports]
from opacus.optimizers import DPOptimizerFastGradientClipping  # pyright: ignore[reportMissingImports]
from opacus.utils.fast_gradient_clipping_utils import (  # pyright: ignore[reportMissingImports]
    DPLossFastGradientClipping,
)
from torch import nn  # pyright: ignore[reportMissingImports]
from torch_networks import Layers
from turns import serve, sofim_step


class Clipper:
    """One set of Opacus objects that every client of the simulation uses in turn."""

    def __init__(self, problem: NetworkProblem, noise_multiplier: float) -> None:
        self.ours = Layers({name: torch.from_numpy(value) for name, value in problem.params.items()})
        self.net, self.load = self.ours.net, self.ours.load
        self.module = GradSampleModuleFastGradientClipping(
            self.net,
            max_grad_norm=problem.clip,  # type: ignore[arg-type]
            use_ghost_clipping=True,
            loss_reduction="sum",
        )
        self.optimizer = DPOptimizerFastGradientClipping(
            torch.optim.SGD(self.module.parameters(), lr=1.0), noise_multiplier=noise_multiplier,
            max_grad_norm=problem.clip, expected_batch_size=None, loss_reduction="sum",
        )  # fmt: skip
        criterion = nn.CrossEntropyLoss(reduction="sum")
        self.loss = DPLossFastGradientClipping(self.module, self.optimizer, criterion, loss_reduction="sum")

    def noisy_sum(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.optimizer.zero_grad()
        self.loss(self.module(x), y).backward()
        self.optimizer.pre_step()  # adds the noise; the step itself is the server's
        return row(self.ours.gradients(), torch.cat)


def main() -> None:
    problem = read_network()
    x, y = [torch.from_numpy(a) for a in problem.x], [torch.from_numpy(a).long() for a in problem.y]
    quiet, noisy = Clipper(problem, 0.0), Clipper(problem, problem.std / problem.clip)
    params = {name: torch.from_numpy(value) for name, value in problem.params.items()}
    flat = row(params, torch.cat)
    state = [flat, torch.zeros_like(flat)]

    def tree(flat: torch.Tensor) -> dict[str, torch.Tensor]:
        names = sorted(params)
        parts = torch.split(flat, [params[n].numel() for n in names])
        return {n: part.reshape(params[n].shape) for n, part in zip(names, parts, strict=True)}

    def one_round() -> None:
        noisy.load(tree(state[0]))
        mean = torch.stack([noisy.noisy_sum(a, b) / len(b) for a, b in zip(x, y, strict=True)]).mean(dim=0)
        state[:] = sofim_step(problem, mean, state[1], state[0])  # type: ignore[arg-type]

    sums = torch.stack([quiet.noisy_sum(a, b) for a, b in zip(x, y, strict=True)])
    serve(f"opacus {opacus.__version__}, torch {torch.__version__}", sums.numpy(), one_round)


if __name__ == "__main__":
    main()
