"""The networks in PyTorch, with our parameters in them: what the scripts that use PyTorch share."""

import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]

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


class Layers:
    """A network of PyTorch's whose parameters are found by the names that ours have."""

    def __init__(self, params: dict[str, torch.Tensor]) -> None:
        self.convolutional = "k1" in params
        self.net = network(self.convolutional)
        self.layers = dict(self.net.named_parameters())
        self.names = sorted(params)
        self.load(params)

    def parameter(self, name: str) -> torch.Tensor:
        layer = (CNN if self.convolutional else MLP)[name[1]]
        return self.layers[f"{layer}.{'bias' if name[0] == 'b' else 'weight'}"]

    @torch.no_grad()
    def load(self, params: dict[str, torch.Tensor]) -> None:
        for name in self.names:
            value = params[name]
            self.parameter(name).copy_(value.permute(3, 2, 0, 1) if name[0] == "k" else turned(value, name))

    def gradients(self) -> dict[str, torch.Tensor]:
        """The gradients that PyTorch left in the parameters, laid out as ours are."""
        found = {}
        for name in self.names:
            grad = self.parameter(name).grad
            assert grad is not None
            found[name] = grad.permute(2, 3, 1, 0) if name[0] == "k" else turned(grad, name)
        return {k: v.contiguous() for k, v in found.items()}
