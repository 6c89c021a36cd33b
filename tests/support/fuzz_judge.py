"""One fuzzed program's fate: what the walk says, what the second opinion says, and who was right."""

import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr

from fedsofim.core.accounting import Charge
from fedsofim.core.audit import Inputs, Program, audit_program
from fedsofim.core.door import Door
from fedsofim.core.models import Model
from fedsofim.core.phase import Phase
from fedsofim.core.second_opinion import confirm
from fedsofim.core.site import MAX_SITES, Site
from fedsofim.errors import InputError, Refused
from fuzz_build import client_of, model_of
from fuzz_execute import Execution
from fuzz_grammar import RELEASES, Node, around, paths
from fuzz_leaks import EFFECTS, RAW
from fuzz_oracle import ENGINE, leak
from fuzz_runs import Priced
from fuzz_world import FACTS, ROUNDS, first_client, records_with, shapes

_ODD = {"forge", "first_door", "keep", "twice", "scan_twice", "bind_sum", *RAW, *EFFECTS}
_PLAIN_BODIES = {"jit", "remat", "door_scan"}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """fate is one of FATES; `why` is the refusal, the error, or how the oracle says it leaks."""

    fate: str
    why: str = ""
    odd: tuple[str, ...] = ()


FATES = (
    "accepted",  # and the oracle found no leak
    "WRONGLY ACCEPTED",
    "refused",  # something in it is against the rules
    "WRONGLY REFUSED",  # nothing in it is, and the oracle found no leak
    "caught by the second opinion",
    "not a program",  # JAX itself cannot trace it
    "unjudged",  # accepted, but the oracle cannot run it
)


def oddities(tree: Node) -> tuple[str, ...]:
    """What in a program is against the rules, or might be: an honest one has none."""
    found = []
    for path, node in paths(tree):
        if node.op in _ODD or node.op.startswith("custom_vmap"):
            found.append(f"{node.op}:{node.setting}" if node.op in ("forge", "bind_sum", "twice") else node.op)
        if node.op in RELEASES:
            found += [f"release in {n.op}" for n in around(tree, path) if n.op not in _PLAIN_BODIES]
        if node.op == "sum" and (node.setting[2] in ("bfloat16", "float16") or node.setting[0] < 0.1):
            found.append(f"sum {node.setting}")
        if node.op == "sum" and node.setting[1] in ("tiny", "tinier", "sampled"):
            found.append(f"sum {node.setting}")
    return tuple(dict.fromkeys(found))


def judge(tree: Node, *, asked_twice: bool = False, whole: bool = False) -> Outcome:
    """Audit a program, then run it.

    The second opinion compiles, so it is asked about leaks and where `asked_twice`; `whole`: see fuzz_oracle.leak.
    """
    odd = oddities(tree)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # overflow of huge records, casts: not what is asked here
        try:
            program = audit_program(client_of(tree), model_of(tree), shapes(), FACTS, Phase.ROUND)
        except (Refused, InputError) as error:
            return _refused(tree, str(error), odd)
        except Exception as error:
            return Outcome(fate="not a program", why=f"{type(error).__name__}: {error}"[:200], odd=odd)
        try:
            how = leak(Priced(program.jaxpr, program.charges, program.sites), whole=whole)
        except Exception as error:  # whatever stops the oracle leaves the program unjudged, which is counted
            return Outcome(fate="unjudged", why=f"{type(error).__name__}: {error}"[:300], odd=odd)
        said = second_opinion(program) if how or asked_twice else None
    if said is None:
        return Outcome(fate="WRONGLY ACCEPTED", why=how, odd=odd) if how else Outcome(fate="accepted", odd=odd)
    if how or odd:
        return Outcome(fate="caught by the second opinion", why=f"{said} [{how}]", odd=odd)
    return Outcome(fate="WRONGLY REFUSED", why=said)


def _refused(tree: Node, why: str, odd: tuple[str, ...]) -> Outcome:
    """Only a refused program without oddities can be wronged; the oracle then has the last word, if it can run it.

    (What the engine does wrong with any program is no reason to refuse this one.)
    """
    if odd:
        return Outcome(fate="refused", why=why, odd=odd)
    try:
        how = leak(by_count(traced(client_of(tree), model_of(tree))))
    except (Refused, InputError):  # the door itself refuses, so that the oracle has nothing to run
        return Outcome(fate="WRONGLY REFUSED", why=f"{why} [not run]")
    except Exception as error:  # JAX cannot trace it either: closing custom_jvp over what is differentiated, for one
        return Outcome(fate="not a program", why=f"{type(error).__name__}: {error}"[:200])
    if how is None or how.startswith(ENGINE):
        return Outcome(fate="WRONGLY REFUSED", why=why)
    return Outcome(fate="refused", why=f"{why} [{how}]")


def second_opinion(program: Program) -> str | None:
    """What the run-time check says against a program that the walk accepted."""
    try:
        confirm(program, shapes(), ROUNDS)
    except Refused as error:
        return str(error)
    return None


def traced(client: Callable, model: Model) -> ClosedJaxpr:
    """A client's jaxpr without an audit."""

    def run(i: Inputs) -> Any:
        given = {f"_{name}": getattr(i, name) for name in ("records", "key", "index", "stds")}
        given |= {"size": i.size, "round": i.round, "facts": FACTS._replace(noise_std=i.noise_std), "_sites": []}
        given |= {"_model": model, "_units": False}
        door = Door(**{f.name: given[f.name] for f in fields(Door)})
        return client(door, i.params, i.state, i.memory)

    return jax.make_jaxpr(run)(shapes())


def by_count(jaxpr: ClosedJaxpr) -> Priced:
    """A program priced by counting its releases as they happen: what an audit that accepted it should charge."""
    records = records_with()
    run = Execution(records)
    given = first_client(jax.random.key(0), records, jnp.ones(MAX_SITES, jnp.float32))
    run.jaxpr(jaxpr.jaxpr, jaxpr.consts, jax.tree.leaves(given))
    sites = {t.site.number: t.site for t in run.taken}
    times = Counter(t.site.number for t in run.taken)
    return Priced(jaxpr, [_charge(site, times[n]) for n, site in sites.items()], list(sites.values()))


def _charge(site: Site, times: int) -> Charge:
    return Charge(
        site=site.number,
        label=site.label,
        clip=site.clip,
        ratio=site.query.ratio,
        releases=times * ROUNDS,
        weight=times * site.noise.cost(ROUNDS),
        sample=site.sample,
    )
