"""Frozen convolutional backbones for 32x32 images, with the published CIFAR-100 weights.

The networks are those of He et al. (2016, section 4.2, 1x1 convolutions on the shortcuts) and of Simonyan
and Zisserman (2015, configuration D) with batch normalisation; layers are named as in
chenyaofo/pytorch-cifar-models (BSD-3), whose weights load here strictly. Importing this file needs torch.
"""

import itertools
from pathlib import Path
from typing import Any

from fedsofim.data.download import Remote, fetch
from fedsofim.errors import InputError, unknown

try:
    import torch  # pyright: ignore[reportMissingImports]
    from torch import Tensor, nn  # pyright: ignore[reportMissingImports]
    from torch.nn.utils.fusion import fuse_conv_bn_eval  # pyright: ignore[reportMissingImports]
except ImportError:
    raise InputError(
        "this needs torch, which is not installed: pip install 'fedsofim[torch]' "
        "(or use --backbone histograms, which needs nothing more)"
    ) from None

RELEASES = "https://github.com/chenyaofo/pytorch-cifar-models/releases/download"


class Block(nn.Module):
    """Two 3x3 convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        same = stride == 1 and inputs == outputs
        self.downsample = (
            None if same else nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        )

    def forward(self, x: Tensor) -> Tensor:
        inner = self.bn2(self.conv2(torch.relu_(self.bn1(self.conv1(x)))))
        return torch.relu_(inner + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    """3 stages of `blocks` blocks of 16, 32, 64 channels; gives the 64 pooled features before `fc`."""

    def __init__(self, blocks: int):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = _stage(16, 16, 1, blocks)
        self.layer2 = _stage(16, 32, 2, blocks)
        self.layer3 = _stage(32, 64, 2, blocks)
        self.fc = nn.Linear(64, 100)  # unused here; present so that the published state dict loads strictly

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu_(self.bn1(self.conv1(x)))
        return self.layer3(self.layer2(self.layer1(x))).mean(dim=(2, 3))


def _stage(inputs: int, outputs: int, stride: int, blocks: int) -> nn.Sequential:
    first = Block(inputs, outputs, stride)
    return nn.Sequential(first, *(Block(outputs, outputs, 1) for _ in range(blocks - 1)))


class VGG16(nn.Module):
    """Thirteen 3x3 convolutions in five halvings; gives the 512 features before `classifier`."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for width, depth in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
            for _ in range(depth):
                layers += [
                    nn.Conv2d(channels, width, 3, padding=1),
                    nn.BatchNorm2d(width),
                    nn.ReLU(inplace=True),
                ]
                channels = width
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        hidden = [nn.Linear(512, 512), nn.ReLU(), nn.Dropout(), nn.Linear(512, 512), nn.ReLU(), nn.Dropout()]
        self.classifier = nn.Sequential(*hidden, nn.Linear(512, 100))  # unused, as `fc` above

    def forward(self, x: Tensor) -> Tensor:
        return self.features(x).flatten(1)


#: name -> (how to build it, published weights; the file name ends in the first 8 digits of its sha256)
BACKBONES = {
    "resnet20": (lambda: ResNet(3), "resnet/cifar100_resnet20-23dac2f1.pt"),
    "resnet56": (lambda: ResNet(9), "resnet/cifar100_resnet56-f2eff4c8.pt"),
    "vgg16_bn": (lambda: VGG16(), "vgg/cifar100_vgg16_bn-7d8c4031.pt"),
}


def backbone(name: str, weights: str | Path | None = None) -> nn.Module:
    """A frozen backbone with the published weights, or with a state dict of the same layout from a file."""
    if name not in BACKBONES:
        raise unknown("backbone", name, [*BACKBONES, "histograms"])
    build, published = BACKBONES[name]
    path = fetch(_remote(published), weights, option="--weights")
    module = build()
    _load_strictly(module, name, path)
    return _fold_batch_norm(module.eval().requires_grad_(False))


def _remote(published: str) -> Remote:
    file = published.rpartition("/")[2]
    return Remote(f"{RELEASES}/{published}", file, "sha256", Path(file).stem.rpartition("-")[2])


def _fold_batch_norm(module: nn.Module) -> nn.Module:
    """Merge each frozen batch normalisation into the convolution before it: same function, less time."""
    for parent in module.modules():
        children = list(parent.named_children())
        for (name, conv), (norm_name, norm) in itertools.pairwise(children):
            if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                setattr(parent, name, fuse_conv_bn_eval(conv, norm))
                setattr(parent, norm_name, nn.Identity())
    return module


def _load_strictly(module: nn.Module, name: str, path: Path) -> None:
    """Fill every parameter and leave none over; tensors only are read, never arbitrary pickles."""
    try:
        state: Any = torch.load(path, map_location="cpu", weights_only=True)
        module.load_state_dict(state, strict=True)
    except Exception as problem:  # torch raises what the file makes it raise: RuntimeError, KeyError, pickle's own...
        lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
        reason = " ".join(lines[:2])[:200] or type(problem).__name__
        raise InputError(f"{path}: not the weights of {name} ({reason}); expected a state dict of tensors") from None
