"""A torch module beside its translation: values and gradients of each record. Importing this file needs torch."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import torch_zoo as zoo
from fedsofim.core.opening import check_captured, opened
from fedsofim.models.adapters.torch_export import apart, exported, made_up, numbers_of, program_of
from fedsofim.models.adapters.torch_programs import Program

torch = zoo.torch


def translated(net: Any, shape: tuple[int, ...]) -> tuple[Program, dict[str, jax.Array]]:
    """The program, and the trained parameters."""

    def read() -> tuple[Program, dict[str, jax.Array]]:
        numbers = numbers_of(net)
        return program_of(exported(net, [made_up(shape)]), numbers), numbers.trained

    return apart(read)


def check_agreement(net: Any, shape: tuple[int, ...], records: int = 2, close: float = 2e-5) -> Program:
    """Values and gradients agree, record by record, to float precision; also when the program is mapped over them."""
    net.eval()
    program, start = translated(net, shape)
    x = np.random.default_rng(7).normal(size=(records, *shape)).astype(np.float32)
    weights = np.random.default_rng(8).normal(size=program.out.shape).astype(np.float32)

    def weighed(params: Any, one: Any) -> tuple[Any, Any]:
        found = program(params, one[None])
        return jnp.sum(found * weights), found

    check_audited(program, start, x[0], weights)
    slopes, ours = jax.jit(jax.vmap(jax.grad(weighed, has_aux=True), (None, 0)))(start, x)
    for i in range(records):
        theirs = net(torch.from_numpy(x[i : i + 1]))
        names = [n for n, _ in net.named_parameters() if n in start]
        parameters = [p for n, p in net.named_parameters() if n in start]
        total = (theirs * torch.from_numpy(weights)).sum()
        grads: Any = [None] * len(names)
        if names and total.requires_grad:
            grads = torch.autograd.grad(total, parameters, allow_unused=True)
        near(ours[i], theirs.detach().numpy(), close)
        arrays = [np.zeros(p.shape) if g is None else g.numpy() for p, g in zip(parameters, grads, strict=True)]
        largest = max((np.abs(a).max(initial=0) for a in arrays), default=0.0)
        for name, array in zip(names, arrays, strict=True):
            near(slopes[name][i], array, 10 * close, least=largest)
    return program


def check_audited(program: Program, start: dict[str, jax.Array], x: np.ndarray, weights: np.ndarray) -> None:
    """The audit knows every operation of the gradient, which captures no arrays but the program's constants."""

    def gradient(x: Any) -> Any:
        return jax.grad(lambda p: jnp.sum(program(p, x[None]) * weights.sum()))(start)

    closed = jax.make_jaxpr(opened(gradient))(x)
    declared = [*program.constants.values(), *start.values()]
    for const in closed.consts:
        if not any(const is public for public in declared):
            check_captured(const)


def near(ours: Any, theirs: np.ndarray, close: float, least: float = 0.0) -> None:
    size = max(np.abs(theirs).max(initial=0), least, 1e-3)
    np.testing.assert_allclose(np.asarray(ours), theirs, rtol=0, atol=close * size)
