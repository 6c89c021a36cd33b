"""Torch modules of many kinds, each with the shape of one record. Importing this file needs torch."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402 # pyright: ignore[reportMissingImports]
from torch.nn import functional as F  # noqa: E402 # pyright: ignore[reportMissingImports]

Zoo = dict[str, tuple[Callable[[], Any], tuple[int, ...]]]


class Then(nn.Module):
    """A function between two linear layers of the last axis."""

    def __init__(self, function: Callable[[Any], Any], features: int = 6, hidden: int = 8, **parts: Any) -> None:
        super().__init__()
        self.first, self.function = nn.Linear(features, hidden), function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: Any) -> Any:
        return self.function(self.first(x))


class Last(nn.Module):
    """The first result of a recurrent layer at its last step."""

    def __init__(self, layer: Any, width: int) -> None:
        super().__init__()
        self.layer, self.out = layer, nn.Linear(width, 3)

    def forward(self, x: Any) -> Any:
        return self.out(self.layer(x)[0][:, -1])


class Block(nn.Module):
    """A residual block as torchvision has it, with GroupNorm."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm1, self.norm2, self.relu = nn.GroupNorm(2, outputs), nn.GroupNorm(2, outputs), nn.ReLU(inplace=True)
        same = inputs == outputs and stride == 1
        self.skip = None if same else nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride), nn.GroupNorm(2, outputs))

    def forward(self, x: Any) -> Any:
        y = self.norm2(self.conv2(self.relu(self.norm1(self.conv1(x)))))
        y += x if self.skip is None else self.skip(x)
        return self.relu(y)


def resnet(bottom: int = 4) -> Any:
    return nn.Sequential(
        nn.Conv2d(3, bottom, 7, 2, padding=3, bias=False), nn.GroupNorm(2, bottom), nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, padding=1), Block(bottom, bottom, 1), Block(bottom, 2 * bottom, 2),
        nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(1), nn.Linear(2 * bottom, 3),
    )  # fmt: skip


class ViT(nn.Module):
    """Patches, a class token, places, an encoder and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 4, 4)
        self.token, self.places = nn.Parameter(torch.randn(1, 1, 8)), nn.Parameter(torch.randn(1, 5, 8))
        layer = nn.TransformerEncoderLayer(8, 2, 16, activation="gelu", batch_first=True, norm_first=True, dropout=0.0)
        self.encoder = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(8), enable_nested_tensor=False)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.places
        return self.head(self.encoder(x)[:, 0])


class Text(nn.Module):
    """Tokens, places, attention, and the table of tokens used again at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.places = nn.Embedding(9, 8, padding_idx=0), nn.Embedding(5, 8)
        self.attention, self.norm = nn.MultiheadAttention(8, 2, batch_first=True), nn.LayerNorm(8)
        self.out = nn.Linear(8, 9, bias=False)
        self.out.weight = self.table.weight

    def forward(self, x: Any) -> Any:
        tokens = x.abs().long().clamp(0, 8)
        h = self.table(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        h = self.norm(h + self.attention(h, h, h, need_weights=False)[0])
        return self.out(h.mean(1))


class Bare(nn.Module):
    """Parameters outside of layers, and an assertion about shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.matrix = nn.Parameter(torch.ones(6)), nn.Parameter(torch.randn(6, 3))
        self.register_buffer("shift", torch.linspace(0, 1, 6), persistent=False)

    def forward(self, x: Any) -> Any:
        assert x.shape[1] == 6, "six features"
        return (x * self.scale + self.shift) @ self.matrix


class Twice(nn.Module):
    """One layer called twice, and its weight once more."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.last = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: Any) -> Any:
        return self.last(torch.tanh(self.layer(torch.tanh(self.layer(x)))) @ self.layer.weight)


def batch_norm() -> Any:
    net = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))
    with torch.no_grad():
        net(torch.randn(20, 2, 6, 6))
    return net.eval()


def weight_norm() -> Any:
    return nn.utils.parametrizations.weight_norm(nn.Linear(6, 3))


class Self(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.attention(x, x, x)


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.decoder = nn.TransformerDecoderLayer(8, 2, 16, 0.0, batch_first=True)

    def forward(self, x: Any) -> Any:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return self.decoder(x, torch.tanh(x), tgt_mask=mask)


class Cell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(4, 5)

    def forward(self, x: Any) -> Any:
        state = None
        for _ in range(3):
            state = self.cell(x, state)
        assert state is not None
        return state[0]


class Tokens(nn.Module):
    def forward(self, x: Any) -> Any:
        return x.abs().mul(3).long().clamp(max=6)


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.middle = nn.Conv2d(2, 4, 3, 2, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.up = nn.Conv2d(6, 3, 3, padding=1)

    def forward(self, x: Any) -> Any:
        h = F.silu(self.middle(F.silu(self.down(x))))
        return self.up(torch.cat([F.interpolate(h, scale_factor=2), x], 1)).mean((2, 3))


class Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.channels = nn.Linear(5, 5), nn.Linear(6, 6)

    def forward(self, x: Any) -> Any:
        x = x + self.tokens(x.transpose(1, 2)).transpose(1, 2)
        return torch.einsum("bij,bik->bjk", x, F.mish(self.channels(x))).flatten(1)


def _conv(layer: Any) -> Any:
    return nn.Sequential(layer, nn.Tanh())


NETWORKS: Zoo = {
    "linear": (lambda: nn.Linear(6, 3), (6,)),
    "linear without bias on sequences": (lambda: nn.Linear(6, 3, bias=False), (4, 6)),
    "mlp": (lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)), (6,)),
    "bilinear": (lambda: Then(lambda x: F.bilinear(x, x, torch.ones(3, 8, 8))), (6,)),
    "resnet": (resnet, (3, 32, 32)),
    "vit": (ViT, (3, 8, 8)),
    "transformer encoder": (
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval(),
        (5, 8),
    ),
    "transformer encoder, norm first": (
        lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.0, F.gelu, batch_first=True, norm_first=True),
        (5, 8),
    ),
    "transformer encoder, frozen": (
        lambda: nn.Sequential(
            nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True).requires_grad_(False), nn.Linear(8, 3)
        ),
        (5, 8),
    ),
    "transformer decoder": (Decoder, (5, 8)),
    "attention": (lambda: Last(Self(), 8), (5, 8)),
    "text": (Text, (5,)),
    "lstm": (lambda: Last(nn.LSTM(4, 5, batch_first=True), 5), (6, 4)),
    "lstm, two layers, both ways": (lambda: Last(nn.LSTM(4, 5, 2, batch_first=True, bidirectional=True), 10), (4, 4)),
    "gru": (lambda: Last(nn.GRU(4, 5, batch_first=True), 5), (6, 4)),
    "rnn": (lambda: Last(nn.RNN(4, 5, nonlinearity="relu", batch_first=True), 5), (6, 4)),
    "lstm, frozen": (lambda: Last(nn.LSTM(4, 5, batch_first=True).requires_grad_(False), 5), (4, 4)),
    "lstm cell": (Cell, (4,)),
    "conv1d": (lambda: _conv(nn.Conv1d(4, 6, 3, stride=2, padding=1, dilation=2, groups=2)), (4, 11)),
    "conv2d": (lambda: _conv(nn.Conv2d(4, 6, (3, 2), (2, 1), (1, 0), (1, 2), groups=2, bias=False)), (4, 7, 8)),
    "conv2d, same": (lambda: _conv(nn.Conv2d(2, 3, 4, padding="same")), (2, 7, 8)),
    "conv2d, reflected": (lambda: _conv(nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect")), (2, 7, 8)),
    "conv2d, around": (lambda: _conv(nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular")), (2, 7, 8)),
    "conv2d, depthwise": (lambda: _conv(nn.Conv2d(4, 8, 3, groups=4)), (4, 7, 8)),
    "conv3d": (lambda: _conv(nn.Conv3d(2, 3, 3, stride=(1, 2, 1), padding=1)), (2, 4, 5, 6)),
    "transposed conv1d": (lambda: _conv(nn.ConvTranspose1d(4, 6, 3, 2, 1, 1, groups=2, dilation=2)), (4, 5)),
    "transposed conv2d": (lambda: _conv(nn.ConvTranspose2d(2, 3, (3, 4), (2, 3), (1, 2), (1, 2))), (2, 4, 5)),
    "transposed conv3d": (lambda: _conv(nn.ConvTranspose3d(2, 3, 2, 2, bias=False)), (2, 3, 3, 3)),
    "layer norm": (lambda: nn.Sequential(nn.Linear(6, 8), nn.LayerNorm([4, 8]), nn.LayerNorm(8, bias=False)), (4, 6)),
    "group norm": (
        lambda: nn.Sequential(nn.Conv1d(4, 6, 3), nn.GroupNorm(3, 6), nn.GroupNorm(2, 6, affine=False)),
        (4, 9),
    ),
    "rms norm": (lambda: nn.Sequential(nn.Linear(6, 8), nn.RMSNorm(8)), (4, 6)),
    "instance norm": (lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.InstanceNorm2d(4, affine=True)), (2, 6, 6)),
    "local response norm": (lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.LocalResponseNorm(3)), (2, 6, 6)),
    "batch norm, stored": (batch_norm, (2, 6, 6)),
    "weight norm": (weight_norm, (6,)),
    "spectral norm": (lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(6, 3)).eval(), (6,)),
    "bare parameters": (Bare, (6,)),
    "used twice": (Twice, (6,)),
    "embedding": (lambda: nn.Sequential(Tokens(), nn.Embedding(7, 4), nn.Flatten(), nn.Linear(20, 3)), (5,)),
    "embedding bag": (lambda: Then(lambda x: F.one_hot(x.argmax(-1), 8) * x.sum(-1, keepdim=True)), (6,)),
    "unet": (UNet, (2, 8, 8)),
    "mixer": (Mixer, (5, 6)),
    "gated": (lambda: nn.Sequential(nn.Linear(6, 8), nn.GLU(), nn.Linear(4, 3)), (6,)),
    "pixel shuffle": (lambda: nn.Sequential(nn.Conv2d(2, 8, 3), nn.PixelShuffle(2), nn.PixelUnshuffle(4)), (2, 6, 6)),
}
