"""Functions of torch that together call every operation that is translated: of h (records, 4, 8), all in float32.

Importing this file needs torch.
"""

import math
from collections.abc import Callable
from typing import Any

import torch_zoo as zoo

torch, F = zoo.torch, zoo.F


def image(h: Any) -> Any:
    return h.reshape(h.shape[0], 2, 4, 4)


def volume(h: Any) -> Any:
    return h.reshape(h.shape[0], 1, 2, 4, 4)


def positive(h: Any) -> Any:
    return h.abs() + 0.1


def changed(h: Any, change: Callable[[Any], Any]) -> Any:
    h = h.clone()
    change(h)
    return h


def _set(h: Any) -> None:
    h[:, 1] = 2.0
    h[:, :, 2:4] += 1.0
    h[:, 0, 1] *= 3.0
    h[:, ::2] = h[:, ::2] * 2
    h[:, 2, :].fill_(0.5)


def tokens(h: Any) -> Any:
    return (h.abs() * 3).long().clamp(0, 3)


NAMES = [
    "abs",
    "acos",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "ceil",
    "cos",
    "cosh",
    "erf",
    "erfc",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "log",
    "log10",
    "log1p",
    "log2",
    "neg",
    "reciprocal",
    "relu",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "sgn",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "trunc",
]


def by_name(name: str) -> Callable[[Any], Any]:
    return lambda h: getattr(torch, name)(torch.sigmoid(h) * 0.9)


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    **{name: by_name(name) for name in NAMES},
    "acosh": lambda h: torch.acosh(1.5 + h.abs()),
    "gelu": F.gelu,
    "gelu by tanh": lambda h: F.gelu(h, approximate="tanh"),
    "elu": lambda h: F.elu(h, 0.7) + F.selu(h) + F.celu(h, 0.5),
    "leaky relu": lambda h: F.leaky_relu(h, 0.2) + F.rrelu(h, training=False) + F.prelu(h, torch.tensor([0.3])),
    "hardtanh": lambda h: F.hardtanh(h, -0.3, 0.4) + F.relu6(h) + F.hardswish(h) + F.hardsigmoid(h),
    "softplus": lambda h: F.softplus(h) + F.mish(h) + F.silu(h) + F.logsigmoid(h) + F.softsign(h),
    "shrink": lambda h: F.hardshrink(h) + F.softshrink(h) + F.tanhshrink(h) + F.threshold(h, 0.1, -1.0),
    "clamp": lambda h: h.clamp(-0.3, 0.4) + h.clamp(min=0.1) + h.clamp(max=torch.tensor(0.2)),
    "remainders": lambda h: (
        torch.remainder(h, 0.3) + torch.fmod(h, 0.3) + torch.remainder(h, h.abs() + 1) + torch.fmod(h, positive(h) / 3)
    ),
    "divisions": lambda h: h / 3 + torch.div(h, 0.3, rounding_mode="floor") + torch.div(h, 0.3, rounding_mode="trunc"),
    "of whole numbers": lambda h: (
        (tokens(h) // 2 - tokens(h) % 3 + torch.div(tokens(h) - 2, 2, rounding_mode="trunc")).float() * h
        + (tokens(h) - 2) / 4
        + ((tokens(h) & 1) ^ tokens(h))
        + ((tokens(h) ^ 3) | 2)
        + (~tokens(h)).float()
        + torch.fmod(tokens(h) - 2, 2)
    ),
    "powers": lambda h: h**2 + h**3 + positive(h) ** 0.5 + positive(h) ** -1.5 + 2.0**h + positive(h) ** h + h**0,
    "atan2": lambda h: torch.atan2(h, positive(h)),
    "pairs": lambda h: torch.maximum(h, h.flip(-1)) - torch.minimum(h, 0.3 * h.flip(1)) - (1 - h),
    "alpha": lambda h: torch.add(h, h * h, alpha=2) - torch.sub(h, h.sin(), alpha=3) + torch.rsub(h, h.cos(), alpha=2),
    "comparisons": lambda h: (
        h * (h > 0)
        + (h >= 0.1) * 2
        + (h < h.flip(1)).float()
        - (h <= -0.2).float()
        + (h > h.flip(2)) * h
        + (h <= h.flip(1)) * 3
    ),
    "equalities": lambda h: (tokens(h) == 1) * h + (tokens(h) != tokens(h.flip(1))) * h * 2 + (tokens(h) == tokens(h)),
    "logic": lambda h: torch.where(
        (h > 0).logical_and(h < 1).logical_or(h > 2).logical_xor(h < -1).logical_not(), h, -2 * h
    ),
    "bits": lambda h: torch.where(((h > 0) & (h < 1) | (h > 2)) ^ ~(h < -1), h, 0.0),
    "not finite": lambda h: torch.where(torch.isnan(h.log()) | torch.isinf(1 / (h > 0).float()), h, 3 * h),
    "sums": lambda h: h.sum(1, keepdim=True) + h.sum((1, 2), keepdim=True) + (h > 0).sum(2, keepdim=True),
    "a whole sum": lambda h: torch.stack([h.sum(), h.mean(), h.prod(), h.max(), h.min(), (h > 9).any(), (h < 9).all()]),
    "means": lambda h: h.mean(2, keepdim=True) + h.mean((1, 2), keepdim=True) + h.prod(1, keepdim=True),
    "largest": lambda h: h.amax(1, keepdim=True) + h.amin((1, 2), keepdim=True) + h.max(2, True)[0] - h.min(1, True)[0],
    "where largest": lambda h: h.argmax(2, keepdim=True) * h + h.argmin(1, keepdim=True) + h.max(1, True)[1] * h,
    "any and all": lambda h: (h > 0).any(1, True) * h + (h > -1).all(2, True) * h + (h > 0).all(1, True).any(2, True),
    "of any or all": lambda h: h * torch.any(h > 0, (1, 2), True) + h * torch.all(h > -9, (1, 2), True),
    "variance": lambda h: (
        h.var(2, keepdim=True) + h.std((1, 2), keepdim=True, correction=0) + sum(torch.var_mean(h, 1, keepdim=True))
    ),
    "running sum": lambda h: h.cumsum(1) + h.flip(1).cumsum(2),
    "softmax": lambda h: h.softmax(1) + h.log_softmax(2) + h.logsumexp(1, True),
    "norms": lambda h: (
        h / h.norm(dim=1, keepdim=True) + h.norm(1, 2, True) + torch.linalg.vector_norm(h, math.inf, 1, True)
    ),
    "sorted": lambda h: h.sort(1)[0] + h.sort(2, descending=True)[0] * h.sort(2)[1] + h.sort(dim=1, stable=True)[0],
    "topk": lambda h: h.topk(3, 2)[0] + h.topk(2, 1, largest=False)[0].mean(1, True)[:, :, :3],
    "shapes": lambda h: h.reshape(-1, 2, 16).transpose(1, 2).unsqueeze(1).squeeze().mT.flatten(1).unflatten(1, (4, -1)),
    "expanded": lambda h: h.unsqueeze(1).expand(-1, 3, -1, -1).flip(1, 3).repeat(1, 1, 2, 1).mean(1),
    "joined": lambda h: torch.cat([h, h.flip(1)], -1) + torch.stack([h, -h], -1).flatten(2),
    "split": lambda h: h.chunk(2, 2)[0] * h.split([3, 4, 1], 2)[1] + torch.stack(h.unbind(1)).sum(0)[:, None, :4],
    "slices": lambda h: h[:, 1:3] + h[:, ::2] + h[:, -2:, :1] + h[:, 0:99:2].flip(2),
    "set in place": lambda h: changed(h, _set),
    "padded": lambda h: F.pad(h, (1, -2, 2, 0), value=0.5) + F.pad(h, (-1, 0, 0, 2)),
    "padded by itself": lambda h: (
        F.pad(h, (2, 1), mode="reflect") + F.pad(h, (1, 2), mode="replicate") + F.pad(h, (3, 0), mode="circular")
    ),
    "rolled": lambda h: (
        h.roll(1, 1) + h.roll((1, 2), (1, 2)) + torch.rot90(h.reshape(-1, 4, 2, 4), 2, (1, 3)).reshape(h.shape)
    ),
    "diagonal": lambda h: h[:, :, :4].diagonal(1, 1, 2) + torch.diag_embed(h[:, 0])[:, 1, :3],
    "triangles": lambda h: h.tril() + h.triu(1) + h.masked_fill(torch.ones(4, 8).tril().bool(), 0.7),
    "made": lambda h: (
        h + torch.full_like(h, 2) + torch.arange(1, 17, 2) + torch.ones(4, 1) + torch.zeros(8) + torch.linspace(0, 1, 8)
    ),
    "a constant": lambda h: h * torch.tensor([1.0, 2, 3, 4, 5, 6, 7, 8]) + torch.tensor([[1], [2], [3], [4]]),
    "scattered": lambda h: torch.zeros_like(h).scatter(1, tokens(h), 2.0) * h + h.scatter_add(1, tokens(h), h * h),
    "scattered from": lambda h: h.scatter(2, tokens(h).argsort(2)[:, :2, :3], h[:, 1:3, 2:5]),
    "gathered": lambda h: h.gather(1, tokens(h)) + h.gather(2, tokens(h)[:, :, :1]),
    "picked": lambda h: (
        h[:, [2, 0, 1]][:, :, torch.tensor([5, 1])] + h.index_select(2, torch.tensor([3, 3])).mean(1, True)
    ),
    "picked by itself": lambda h: h[torch.arange(h.shape[0]), tokens(h)[:, 0, 0]] + h[:, tokens(h)[0, :, 0] * 0],
    "put": lambda h: torch.zeros_like(h).index_put(
        (torch.arange(h.shape[0])[:, None], torch.tensor([[1, 1]])), h[:, :2], accumulate=True
    ),
    "looked up": lambda h: F.embedding(tokens(h[:, 0]), h[0, :, :4] * 0 + 1, padding_idx=2) * h[:, 0, :, None],
    "one hot": lambda h: F.one_hot(tokens(h), 5).float().mean(1),
    "asserted": lambda h: (torch._assert_async(torch.isfinite(h).all()), h * 2)[1],
    "products": lambda h: (
        h @ h.mT + torch.einsum("bij,bkj->bik", h, h) + torch.baddbmm(h[:, :, :4], h, h.mT, beta=2, alpha=0.5)
    ),
    "matrices": lambda h: (
        torch.addmm(h[:, 0, :4], h[:, 0], torch.ones(8, 4), beta=0.3, alpha=2) + h[:, 1] @ torch.eye(8, 4)
    ),
    "vectors": lambda h: torch.mv(h.flatten(0, 1), torch.ones(8)).reshape(-1, 4) + torch.dot(h[0, 0], h[0, 0]),
    "distances": lambda h: F.cosine_similarity(h[:, :2], h[:, 2:], dim=2) + F.pairwise_distance(h[:, :2], h[:, 2:]),
    "bilinear": lambda h: F.bilinear(h, h.flip(1), torch.linspace(-1, 1, 192).reshape(3, 8, 8)),
    "attention": lambda h: F.scaled_dot_product_attention(h, h, h, is_causal=True),
    "attention by a mask": lambda h: F.scaled_dot_product_attention(h, h, h, torch.eye(4).bool(), scale=0.3),
    "max pools": lambda h: (
        F.max_pool2d(image(h), 3, 2, 1)
        + F.max_pool2d(image(h), 2, ceil_mode=True)
        - F.max_pool1d(h, 2)[:, :1, None, :1]
    ),
    "max pools that round up": lambda h: (
        F.max_pool2d(image(h), 3, 2, 1, ceil_mode=True) + F.max_pool2d(image(h), 2, 3, ceil_mode=True).sum()
    ),
    "max pools of volumes": lambda h: F.max_pool3d(volume(h), (1, 2, 2), 2),
    "average pools": lambda h: (
        F.avg_pool2d(image(h), 3, 2, 1)
        + F.avg_pool2d(image(h), 3, 2, 1, count_include_pad=False)
        + F.avg_pool2d(image(h), 2, divisor_override=3)
    ),
    "average pools that round up": lambda h: (
        F.avg_pool2d(image(h), 3, 2, 1, ceil_mode=True)
        + F.avg_pool2d(image(h), 3, 2, 1, ceil_mode=True, count_include_pad=False)
    ),
    "average pools beyond the end": lambda h: (
        F.avg_pool2d(image(h), 3, 2, ceil_mode=True) + F.avg_pool2d(image(h), 3, 2, 0, True, False)
    ),
    "average pools of others": lambda h: (
        F.avg_pool1d(h, 3, 2, 1).mean(2) + F.avg_pool3d(volume(h), (2, 3, 3), 1, (1, 1, 1)).mean((1, 2, 3))
    ),
    "pools to a size": lambda h: (
        F.adaptive_avg_pool2d(image(h), (3, 2))
        + F.adaptive_avg_pool1d(h, 3)[:, :2, :, None]
        + F.adaptive_avg_pool2d(h.unsqueeze(1), (3, 2))
    ),
    "pools to a size in volumes": lambda h: (
        F.adaptive_avg_pool3d(volume(h), (1, 3, 2)) + F.adaptive_max_pool3d(volume(h), (1, 1, 2))
    ),
    "max pools to a size": lambda h: F.adaptive_max_pool2d(image(h), (2, 4)) + F.adaptive_max_pool1d(h, 4)[:, :2, None],
    "power pools": lambda h: F.lp_pool2d(image(h).abs() + 0.1, 2, 2) + F.lp_pool1d(positive(h), 3, 2)[:, :2, None, :2],
    "nearest": lambda h: F.interpolate(image(h), scale_factor=2) + F.interpolate(image(h), size=(8, 8)),
    "nearest, odd": lambda h: F.interpolate(image(h), size=(7, 3)) + F.interpolate(image(h), scale_factor=(1.8, 0.9)),
    "nearest, others": lambda h: F.interpolate(h, 5)[:, :1, None] + F.interpolate(volume(h), (2, 3, 5)).mean(2),
    "linear": lambda h: (
        F.interpolate(image(h), (7, 3), mode="bilinear")
        + F.interpolate(image(h), (7, 3), mode="bilinear", align_corners=True)
    ),
    "linear, others": lambda h: (
        F.interpolate(h, 5, mode="linear")[:, :1, None] + F.interpolate(volume(h), (3, 3, 5), mode="trilinear").mean(2)
    ),
    "linear, scaled": lambda h: F.interpolate(image(h), scale_factor=1.6, mode="bilinear"),
    "bicubic": lambda h: F.interpolate(image(h), (7, 3), mode="bicubic"),
    "windows": lambda h: F.unfold(image(h), 3, padding=1, stride=2),
    "detached": lambda h: h * h.detach() + h.cos(),
    "converted": lambda h: (
        (h * 4).int().float() + (h > 0).long() * h + h.bool().float() + (h * 3).to(torch.int32) * 0.5
    ),
    "kinds mixed": lambda h: (h > 0) + (tokens(h) * 2 + (h > 1)) * h + (h > 0) * (h < 1),
    "logs": lambda h: (
        torch.logaddexp(h, h.flip(1))
        + torch.xlogy(h, positive(h))
        + torch.lerp(h, h.flip(1), 0.3)
        + torch.addcmul(h, h, h)
    ),
}
