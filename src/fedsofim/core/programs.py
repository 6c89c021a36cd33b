"""A run's programs, read, counted and confirmed: one for each phase it has. Shapes only, no record is needed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp

from fedsofim.core.audit import Inputs, Program, audit_program, check_takes, declared_by, pair
from fedsofim.core.banded import Banded
from fedsofim.core.containers import check_containers
from fedsofim.core.door import Facts
from fedsofim.core.evaluation import Evaluation
from fedsofim.core.feature_moments import FeatureMoments
from fedsofim.core.isolation import call_apart, settings
from fedsofim.core.keys import key_of
from fedsofim.core.mechanisms import Independent
from fedsofim.core.method import Method
from fedsofim.core.models import Model, is_linear
from fedsofim.core.participation import times_asked
from fedsofim.core.phase import Phase
from fedsofim.core.pooled import can_pool
from fedsofim.core.preparation import Centred, ColumnScales, Step, UnitNorm, Whitened, program_of, units_of, width_of
from fedsofim.core.records import Records
from fedsofim.core.second_opinion import confirm
from fedsofim.core.site import MAX_SITES
from fedsofim.errors import InputError, Refused, raised, shown
from fedsofim.tasks import Task

MOST_RELEASES = 10**9  # of one program at a time: whoever wants fewer says so


@dataclass(frozen=True, kw_only=True)
class Public:
    """The public numbers that a client's programs are read for."""

    shape: tuple[int, ...]  # of one record's features
    classes: int  # outputs of the model: as many as there are classes, or what the task has (tasks.py)
    blocks: tuple[int, int]  # how many blocks of records, of which length
    clients: int
    rounds: int
    clip: float
    groups: int = 1  # of clients that take turns (participation.py)
    asked: tuple[int, int] | None = None  # how many blocks are read in a round, where they do
    batch_rate: float = 1.0  # of the records in a gradient
    attendance: float = 1.0  # with which a client takes part in a round (drawn_clients.py)
    places: int | None = None  # of a unit's records (unit.py); None: each record is a unit
    task: Task = Task()
    evaluation: Evaluation | None = None

    def facts(self, preparation: Sequence[Step], linear: bool = True) -> Facts:
        """What a method may know of them; the noise comes later."""
        units = units_of(preparation, self.classes, self.task, linear)
        rates = {"batch_rate": self.batch_rate, "attendance": self.attendance}
        return Facts(self.rounds, self.clients, self.clip, 0.0, units, self.groups, **rates)

    def times(self, phase: Phase) -> int:
        """How often a client runs the program of a phase, at most."""
        counts = 0 if self.evaluation is None else self.evaluation.times
        return phase.times(times_asked(self.rounds, self.groups), counts)


def read_programs(
    method: Method, model: Model, preparation: tuple[Step, ...], public: Public, most: int = MOST_RELEASES
) -> Mapping[Phase, Program]:
    """Audit the program of each phase, in the order of the phases. Cached: seeds and budgets share a compilation.

    The method's and the model's own functions are called on a thread whose stack leads to no records (isolation.py).

    `public.shape` is that of the records as they come; the rounds see them prepared. A program that releases more than
    `most` times is refused before a step of it is run.
    """
    return _read_programs(method, model, preparation, public, most, settings())


@lru_cache(maxsize=256)
def _read_programs(*of: Any) -> Mapping[Phase, Program]:
    return call_apart(_audited, *of[:-1])  # the last are JAX's settings, under which a program is another one


def _audited(
    method: Method, model: Model, preparation: tuple[Step, ...], public: Public, most: int
) -> Mapping[Phase, Program]:
    units = public.places is not None
    _check_functions(method, model)
    check_preparation(preparation)
    parameter_shapes(model, public, preparation)  # some models know their constants once they know a record's shape
    declared = declared_by(model)  # before a stranger's program runs
    inputs = input_shapes(method, model, public, preparation)
    for what, numbers in (("the model", inputs.params), (method.name, (inputs.state, inputs.memory))):
        check_containers(what, jax.tree.structure(numbers))
    _check_loss(model, inputs, units)
    facts = public.facts(preparation, is_linear(model))
    once = replace(inputs, state=(), memory=())
    clients: dict[Phase, tuple[Callable, Inputs]] = {}
    for i, step in enumerate(preparation):
        if step.phase is not None:
            shape = shape_after(preparation[:i], public.shape)
            given = replace(once, records=record_shapes(public, shape))
            clients[step.phase] = program_of(step, shape[0]), given
    if method.setup is not None:
        ask = method.setup.client
        clients[Phase.SETUP] = (lambda door, params, *_: (ask(door, params), ())), once
    clients[Phase.ROUND] = method.client, inputs
    if public.evaluation is not None:
        clients[Phase.EVALUATION] = public.evaluation.client(model), once
    found = {
        phase: audit_program(c, model, given, facts, phase, times=public.times(phase), units=units, declared=declared)
        for phase, (c, given) in clients.items()
    }
    _check_gaps(method, found, public)
    found[Phase.ROUND] = _attended(method, found[Phase.ROUND], public.attendance)
    for phase, program in found.items():
        _check_work(program, public.times(phase), most)
    _check_forms(method, found, inputs, facts)
    for phase, (_, given) in clients.items():
        confirm(found[phase], given, public.times(phase))
    return found


def made_by_all(program: Program) -> bool:
    """Is the noise of a round made by all clients, whoever is asked in it (banded.py)?"""
    return any(type(site.noise) is Banded for site in program.sites)


def _check_gaps(method: Method, programs: Mapping[Phase, Program], public: Public) -> None:
    """Banded noise is for one gradient a round, for clients that take turns, and for just as many rounds: its price is
    that of a matrix which ends with the run (banded.py)."""
    found = [(phase, site.noise) for phase, p in programs.items() for site in p.sites if type(site.noise) is Banded]
    if not found:
        return
    if public.groups == 1 or {noise.gap for _, noise in found} != {public.groups} or not can_pool(method):
        raise Refused(
            f"{method.name} with banded noise at {public.groups} groups of clients: it is for methods of one gradient "
            "a round whose clients take turns (participants k of n), as far apart as they do. Use noise='tree', or "
            "restart=1"
        )
    if wrong := [noise for phase, noise in found if phase is not Phase.ROUND or noise.rounds != public.rounds]:
        raise Refused(
            f"{method.name} with banded noise laid out over {wrong[0].rounds} rounds in a run of {public.rounds}: it "
            "is for the rounds, and its cost ends with the last of them. Give it the run's (facts.rounds)"
        )


def _attended(method: Method, program: Program, attendance: float) -> Program:
    """The program of the rounds, priced for a client that takes part in each by chance (drawn_clients.py)."""
    if attendance == 1:
        return program
    if len(program.charges) != 1 or any(type(site.noise) is not Independent for site in program.sites):
        raise Refused(
            f"{method.name}: a client that takes part by chance is priced for one release a round under independent "
            "noise; noise laid out over the rounds is not. Use another noise, or --participants"
        )
    return replace(program, charges=tuple(replace(c, attendance=attendance) for c in program.charges))


def _check_work(program: Program, times: int, most: int) -> None:
    asked = sum(charge.releases for charge in program.charges) // times
    if asked > most:
        raise Refused(f"a client would release {asked} times in one {program.phase}; the most allowed here is {most}")


def _check_functions(method: Method, model: Model) -> None:
    """Does everything a stranger wrote take what it will be given?"""
    check_takes(f"{method.name}: the server", method.server, "mean", "state", "params", "facts")
    if method.setup is not None:
        check_takes(f"{method.name}: the setup's client", method.setup.client, "door", "params")
        check_takes(f"{method.name}: the setup's server", method.setup.server, "mean", "state")
    check_takes("the model's init", model.init, "key", "shape", "classes")
    check_takes("the model's loss", model.loss, "params", "x", "y")
    check_takes("the model's logits", model.logits, "params", "x")


def _check_loss(model: Model, inputs: Inputs, units: bool) -> None:
    """The loss of one record is one number; else there is no gradient of it."""
    x, y = (jax.ShapeDtypeStruct(a.shape[2 + units :], a.dtype) for a in (inputs.records.x, inputs.records.y))
    try:
        found = jax.eval_shape(lambda *given: model.loss(*given), inputs.params, x, y)
    except (InputError, NameError):  # of an axis of records, by name: the audit says what that would do
        return
    except Exception as error:  # whatever the model's own code raises
        raise InputError(
            f"the model's loss fails for one record with features of shape {x.shape} and an answer of type {y.dtype} "
            f"and shape {y.shape}: {raised(error)}. A model that leaves its loss to the task has Model(outputs=...)"
        ) from error
    if getattr(found, "shape", None) != ():
        raise InputError(
            f"the model's loss of one record is {shown(found)}; expected one number. A model that leaves its loss to "
            "the task has Model(outputs=...)"
        )


#: The library's own steps of a preparation: there are no others.
STEPS = (ColumnScales, UnitNorm, Centred, Whitened, FeatureMoments)


def check_preparation(steps: Any) -> None:
    """Only the library's own steps: their maps take each record by itself, which nothing could check of a stranger's.
    And one release a phase: a second one would be made and not charged."""
    if not isinstance(steps, tuple | list) or any(type(step) not in STEPS for step in steps):
        names = ", ".join(f"fs.{kind.__name__}" for kind in STEPS)
        raise InputError(f"preparation is {shown(steps)}; expected a list of steps, each one of {names}")
    phases = [step.phase for step in steps if step.phase is not None]
    if twice := [phase for phase in phases if phases.count(phase) > 1]:
        raise InputError(f"preparation releases twice in the phase '{twice[0]}'; expected each phase once")


def shape_after(preparation: Sequence[Step], shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a record's features after a preparation, which is for vectors."""
    if preparation and len(shape) != 1:
        raise InputError(f"records of shape {shape} cannot be prepared; expected one row of features each")
    return (width_of(preparation, shape[0]),) if preparation else shape


def _spec(shape: tuple[int, ...], dtype: Any = jnp.float32) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)


def record_shapes(public: Public, shape: tuple[int, ...], blocks: tuple[int, int] | None = None) -> Records:
    """Shapes of a client's records, laid out in blocks, with features of this shape."""
    blocks, (of_y, dtype) = blocks or public.blocks, public.task.target(public.classes)
    places = () if public.places is None else (public.places,)
    return Records(
        x=_spec((*blocks, *places, *shape)),
        y=_spec((*blocks, *places, *of_y), jnp.dtype(dtype)),
        weight=_spec(blocks),
        owner=_spec(blocks[:1], jnp.int32),
    )


def parameter_shapes(model: Model, public: Public, preparation: tuple[Step, ...] = ()) -> Any:
    """Shapes of a model's parameters."""
    shape = shape_after(preparation, public.shape)
    return jax.eval_shape(lambda k: model.init(k, shape, public.classes), jax.eval_shape(lambda: key_of(0)))


# Functions are wrapped, so that JAX keeps no class of somebody's own in its caches: to look there is to ask it `==`.


def input_shapes(method: Method, model: Model, public: Public, preparation: tuple[Step, ...] = ()) -> Inputs:
    """Shapes of everything that a client's program of the rounds takes."""
    key = jax.eval_shape(lambda: key_of(0))
    shape, spec = shape_after(preparation, public.shape), _spec
    params = parameter_shapes(model, public, preparation)
    return Inputs(
        params=params,
        state=_first_shapes(f"{method.name}: init", method.init, params),
        memory=_first_shapes(f"{method.name}: memory", method.memory, params),
        key=key,
        index=spec((), jnp.int32),
        size=spec(()),
        round=spec((), jnp.int32),
        noise_std=spec(()),
        stds=spec((MAX_SITES,)),
        records=record_shapes(public, shape, public.asked),
    )


def _first_shapes(what: str, function: Callable[[Any], Any], params: Any) -> Any:
    """Shapes of what a method makes of the first parameters."""
    try:
        return jax.eval_shape(lambda given: function(given), params)
    except InputError:
        raise
    except Exception as error:  # whatever the method's own code raises
        raise InputError(f"{what} fails: {raised(error)}") from error


def upload_shapes(program: Program) -> Any:
    """Shapes of what a client uploads."""
    return _output_shapes(program)[0]


def _output_shapes(program: Program) -> tuple[Any, Any]:
    """Shapes of what a client uploads and of what it keeps."""
    specs = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in program.jaxpr.jaxpr.outvars]
    return jax.tree.unflatten(program.outputs, specs)


# --- what goes from one round to the next -------------------------------------------------------------------


def _check_forms(method: Method, programs: Mapping[Phase, Program], inputs: Inputs, facts: Facts) -> None:
    """Memory, parameters and state come back in the form they had, or no round could follow."""

    def step(mean: Any, state: Any, params: Any, noise_std: Any) -> tuple[Any, Any]:
        returned = method.server(mean, state, params, facts._replace(noise_std=noise_std))
        return pair(f"{method.name}: the server", returned, "the parameters and its state")

    upload, memory = _output_shapes(programs[Phase.ROUND])
    params, state = jax.eval_shape(step, upload, inputs.state, inputs.params, inputs.noise_std)
    _check_form(f"{method.name}: the client keeps a memory", memory, inputs.memory)
    _check_form(f"{method.name}: the server gave parameters", params, inputs.params)
    _check_form(f"{method.name}: the server gave a state", state, inputs.state)
    if method.setup is not None:
        serve = method.setup.server
        state = jax.eval_shape(lambda *given: serve(*given), upload_shapes(programs[Phase.SETUP]), inputs.state)
        _check_form(f"{method.name}: the server's setup gave a state", state, inputs.state)


def _check_form(what: str, given: Any, wanted: Any) -> None:
    (new, new_tree), (old, old_tree) = jax.tree.flatten(given), jax.tree.flatten(wanted)
    if new_tree != old_tree or not all(map(_follows, new, old)):
        raise InputError(f"{what} of form {_form(given)}; expected {_form(wanted)}, as before the round")


def _follows(new: Any, old: Any) -> bool:
    """May an array take another's place in the next round? What was a Python number takes any type."""
    return new.shape == old.shape and (old.weak_type or new.dtype == old.dtype)


def _form(tree: Any) -> Any:
    return jax.tree.map(lambda s: f"{s.dtype}[{','.join(map(str, s.shape))}]", tree)
