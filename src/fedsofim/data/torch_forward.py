"""The few lines of extraction that touch torch: normalise, resize, run, hash. Importing it needs torch."""

import hashlib

import numpy as np

# whose import error says how to get torch
from fedsofim.data.backbones import nn, torch  # pyright: ignore[reportAttributeAccessIssue, reportPrivateImportUsage]


def forward(module: nn.Module, images: np.ndarray, side: int, mean: tuple, std: tuple) -> np.ndarray:
    """Features of uint8 images (n, h, w, 3), resized bilinearly to side x side if they are not."""
    with torch.inference_mode():
        x = torch.from_numpy(np.array(images)).permute(0, 3, 1, 2).float()
        if x.shape[2:] != (side, side):
            x = nn.functional.interpolate(x, size=(side, side), mode="bilinear", align_corners=False)
        centre, width = (255 * torch.tensor(values).view(1, 3, 1, 1) for values in (mean, std))
        x = x.sub_(centre).div_(width)
        return module(x.contiguous(memory_format=torch.channels_last)).numpy()  # the faster layout on a CPU


def identity(module: nn.Module) -> bytes:
    """A hash of a module's structure and weights."""
    digest = hashlib.sha256(repr(module).encode())
    for name, tensor in module.state_dict().items():
        digest.update(name.encode() + tensor.detach().cpu().numpy().tobytes())
    return digest.digest()
