"""From a tree to a client's program, and to the model it is read with."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fedsofim.core.mechanisms import Diagonal, Independent, Tree
from fedsofim.core.models import Model, softmax_head
from fuzz_grammar import HEAD, RECORD_BODIES, Node
from fuzz_leaks import EFFECTS, RAW, bind_by_hand, forged, vmap_honest, vmap_mixes, vmap_swaps
from fuzz_vectors import BINARY, F32, HIGHER, SOURCES, UNARY, Env, cond, switch, vector

NOISES = {
    "1": 1.0, "2": 2.0, "0.5": 0.5, "independent": Independent(3.0), "tree": Tree(), "diagonal": Diagonal(rounds=2),
    "tiny": 1e-38, "tinier": 1e-170,
}  # fmt: skip


def client_of(program: Node) -> Callable:
    """client(door, params, state, memory) -> (upload, memory) as the tree says."""
    upload, memory, _ = program.args

    def client(door, params, state, kept):
        env = Env(door=door, first=door, params=params, state=state, memory=kept, v=state, kept=[])
        return evaluate(env, upload), evaluate(env, memory)

    return client


def model_of(program: Node) -> Model:
    """The softmax head in closed form, or a loss of the tree's own."""
    loss = program.args[2]
    head = softmax_head()
    if loss == HEAD:
        return head

    def own(theta: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        env = Env(door=None, first=None, params=theta, state=x, memory=x, v=theta[:3, 0], x=x, y=y.astype(F32), kept=[])
        return jnp.sum(evaluate(env, loss)) + jnp.sum(theta)

    return Model(head.init, own, head.logits)


def evaluate(env: Env, node: Node) -> jax.Array:
    """The vector that a node stands for."""
    op, args, setting = node.op, node.args, node.setting
    if op in SOURCES:
        return SOURCES[op](env)
    if op in RAW:
        return RAW[op](env)
    if op == "number":
        return jnp.full((3,), F32(setting))
    if op in UNARY:
        return UNARY[op](evaluate(env, args[0]))
    if op in BINARY:
        return BINARY[op](evaluate(env, args[0]), evaluate(env, args[1]))
    if op in EFFECTS:
        return EFFECTS[op](evaluate(env, args[0]))
    return _structured(env, node) if op in STRUCTURED else _released(env, node, setting)


def _bound(env: Env, body: Node) -> Callable[[jax.Array], jax.Array]:
    return lambda v: evaluate(env._replace(v=v), body)


def _structured(env: Env, node: Node) -> jax.Array:
    """Functions of `v`, branches, forged doors and batching rules."""
    op, args = node.op, node.args
    if op in HIGHER:
        return HIGHER[op](_bound(env, args[0]), evaluate(env, args[1]), node.setting)
    if op == "cond":
        return cond(evaluate(env, args[0]), lambda: evaluate(env, args[1]), lambda: evaluate(env, args[2]))
    if op == "switch":
        return switch(evaluate(env, args[0]), [lambda a=a: evaluate(env, a) for a in args[1:]])
    if op == "forge":
        return evaluate(env._replace(door=forged(env.door, node.setting)), args[0])
    if op == "first_door":
        return evaluate(env._replace(door=env.first), args[0])
    if op == "keep":
        env.kept.append(evaluate(env, args[0]))
        return env.kept[-1]
    if op == "twice":  # one function object, so that a cached trace is used again
        how = {"jit": jax.jit, "remat": jax.checkpoint, "plain": lambda f: f}[node.setting]
        f = how(_bound(env, args[0]))
        return f(evaluate(env, args[1])) - f(evaluate(env, args[2]))
    if op == "scan_twice":
        f = jax.jit(lambda v: _door_scan(env, args[0], v, 1))
        return f(evaluate(env, args[1])) - f(evaluate(env, args[2]))
    if op == "door_scan":
        return _door_scan(env, args[0], evaluate(env, args[1]), node.setting)
    if op == "custom_vmap_swaps":
        return vmap_swaps(evaluate(env, args[0]), evaluate(env, args[1]))
    return {"custom_vmap": vmap_honest, "custom_vmap_mixes": vmap_mixes}[op](evaluate(env, args[0]))


STRUCTURED = {
    *HIGHER, "cond", "switch", "forge", "first_door", "keep", "twice", "scan_twice", "door_scan", "custom_vmap_swaps",
    "custom_vmap", "custom_vmap_mixes",
}  # fmt: skip


def _door_scan(env: Env, body: Node, start: jax.Array, length: int) -> jax.Array:
    return env.door.scan(lambda door, v: evaluate(env._replace(door=door, v=v), body), start, length)


def _released(env: Env, node: Node, setting: Any) -> jax.Array:
    """Through the door: a gradient at params moved by a vector, a sum or a second moment of a function of records."""
    if node.op == "gradient":
        clip, noise = setting
        moved = env.params + jnp.pad(evaluate(env, node.args[0])[:, None], ((0, 1), (0, 1)))
        return vector(env.door.gradient(moved, clip=clip, noise=NOISES[noise]))
    if node.op not in RECORD_BODIES:
        raise ValueError(f"no such node: {node.op}")
    outside = env._replace(v=evaluate(env, node.args[1]))  # computed before, closed over by the per-record function

    def of_record(x: jax.Array, y: jax.Array) -> Any:
        return evaluate(outside._replace(x=x, y=y.astype(F32)), node.args[0])

    if node.op == "bind_sum":
        return bind_by_hand(env.door, of_record, setting)
    clip, noise, kind = setting
    if node.op == "second_moment":
        return vector(env.door.second_moment(of_record, clip=clip, noise=NOISES[noise]))
    fn = {
        "one": of_record,
        "two": lambda x, y: (of_record(x, y), {"again": of_record(x, y)[:2] * F32(0.5)}),
        "bfloat16": lambda x, y: of_record(x, y).astype(jnp.bfloat16),
        "float16": lambda x, y: of_record(x, y).astype(jnp.float16),
    }[kind]
    sample = 0.5 if noise == "sampled" else 1.0
    leaves = jax.tree.leaves(env.door.sum(fn, clip=clip, noise=NOISES.get(noise, 1.0), sample=sample))
    return vector(jnp.concatenate([jnp.ravel(leaf).astype(F32) for leaf in leaves]))
