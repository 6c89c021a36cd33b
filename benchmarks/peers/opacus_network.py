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
from turns import serve, sofim_step

MLP = {"1": "0", "2": "2"}  # which layer of the network has which number in the names of parameters
CNN = {"1": "1", "2": "4", "3": "9", "4": "11"}


class Channels(nn.Module):
    """(n, 784) as images of one channel; and channels last before the layers, as our parameters have them."""

    def __init__(self, last: bool) -> None:
        super().__init__()
        self.last = last

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.permute(0, 2, 3, 1).flatten(1) if self.last else x.view(-1, 1, 28, 28)


def network(convolutional: bool) -> nn.Sequential:
    if not convolutional:
        return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    return nn.Sequential(
        Channels(False), nn.Conv2d(1, 16, 8, 2, padding=3), nn.ReLU(), nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.MaxPool2d(2, 1), Channels(True), nn.Identity(),
        nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 10),
    )  # fmt: skip


def turned(a: torch.Tensor, name: str) -> torch.Tensor:
    """A parameter between our layout and torch's: (in, out), or (h, w, in, out), against (out, in, h, w)."""
    return a.T if name[0] == "w" else a


class Clipper:
    """One set of Opacus objects that every client of the simulation uses in turn."""

    def __init__(self, problem: NetworkProblem, noise_multiplier: float) -> None:
        self.convolutional = "k1" in problem.params
        self.net = network(self.convolutional)
        self.layers = dict(self.net.named_parameters())
        self.names = sorted(problem.params)
        self.load({name: torch.from_numpy(value) for name, value in problem.params.items()})
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

    def parameter(self, name: str) -> torch.Tensor:
        layer = (CNN if self.convolutional else MLP)[name[1]]
        return self.layers[f"{layer}.{'bias' if name[0] == 'b' else 'weight'}"]

    @torch.no_grad()
    def load(self, params: dict[str, torch.Tensor]) -> None:
        for name in self.names:
            value = params[name]
            self.parameter(name).copy_(value.permute(3, 2, 0, 1) if name[0] == "k" else turned(value, name))

    def noisy_sum(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.optimizer.zero_grad()
        self.loss(self.module(x), y).backward()
        self.optimizer.pre_step()  # adds the noise; the step itself is the server's
        found = {}
        for name in self.names:
            grad = self.parameter(name).grad
            assert grad is not None
            found[name] = grad.permute(2, 3, 1, 0) if name[0] == "k" else turned(grad, name)
        return row({k: v.contiguous() for k, v in found.items()}, torch.cat)


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
