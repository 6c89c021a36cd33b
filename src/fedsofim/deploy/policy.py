"""What a node's operator allows: one TOML file, written by the operator and read anew for every request.

format = 1                      # the version of this format

[node]
name = "hospital-1"             # what the node is called: letters, digits, dots, spaces and dashes
data = "records.csv"            # a table (.csv, .tsv, .parquet) by its schema; or .npz with x and y
test = "held-out.csv"           # records that no round sees, for counting right answers
schema = "schema.toml"          # public: what the columns mean, and the classes
classes = 10                    # in place of a schema, where records are an .npz file: how many classes there are
ledger = "ledger.db"            # what was released so far: made once, kept as long as the data
mask_key = "mask.key"           # for secure sums: the secret half that `fedsofim federation mask-key` made
witness = "/var/lib/witness"    # the file in which the node remembers how its ledger ended: never in the folder that
                                # the ledger is restored with. Left out, it is in the user's state folder

[budget]                        # over the life of the data, all runs and servers together
epsilon = 2.0                   # the cap: what would bring the ledger above it is refused. Or "no-privacy": for
                                # rehearsals on records that need no protection
delta = 1e-5                    # at which epsilon is stated: well below one over the number of records
unit = "person"                 # whom epsilon protects: record (if left out), client, or
                                # person (the schema's column of kind person)
records_per_person = 10         # needed with person or client: how many records of one may count, at most

[limits]
smallest_multiplier = 1.0       # noise std over clip, of every release
largest_clip = 10.0             # the largest norm a record may have in what a method sums, whose clip the job names
methods = ["fedsofim", "fedgd"] # those of the installed ones that this node takes part in: `fedsofim methods`
models = ["linear", "mlp"]      # of what is installed here; left out, only the linear one
secure_sum_min_clients = 0      # 0: never share noise; else how many clients, this one included, are trusted
                                # to draw their share of it

[work]                          # optional, like each line: how much anybody may keep this node busy
rounds = 10000                  # of one job
local_steps = 1000              # releases in one round
requests = 20000                # over the life of the ledger, whatever they cost
requests_an_hour = 10000        # in any hour, whatever they cost
message_mb = 256                # arrays of one request, or of its answer
stored_mb = 256                 # answers kept for being asked again
seconds = 600                   # for one message; then whoever works on it is ended

[peers]                         # only for secure sums: the others' mask keys, as their operators gave them
hospital-2 = "k3Zr...="
"""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from fedsofim import models
from fedsofim.core.budget import WITHOUT, Budget
from fedsofim.core.models import HEAD
from fedsofim.data.schema import Schema, read_schema
from fedsofim.deploy.account import Account, Bounds
from fedsofim.deploy.installed import is_installed
from fedsofim.deploy.sane import is_name
from fedsofim.errors import InputError, is_whole, unknown
from fedsofim.formats import POLICY, check_format
from fedsofim.methods import names
from fedsofim.protection import UNITS, Unit
from fedsofim.tasks import CLASSES


@dataclass(frozen=True, kw_only=True)
class Work:
    """How much anybody may keep a node busy, whatever it costs in epsilon."""

    rounds: int = 10_000  # of one job
    local_steps: int = 1_000  # releases in one round
    requests: int = 20_000  # over the life of the ledger
    requests_an_hour: int = 10_000
    message_mb: int = 256  # arrays of one request, or of its answer
    stored_mb: int = 256  # answers kept for being asked again
    seconds: int = 600  # for one message

    @property
    def bounds(self) -> Bounds:
        """What of it the ledger keeps."""
        return Bounds(requests=self.requests, requests_an_hour=self.requests_an_hour, stored=self.stored_mb * 1_000_000)


@dataclass(frozen=True, kw_only=True)
class Policy:
    """A checked policy; paths are absolute."""

    name: str
    data: Path
    classes: int  # public: stated, or listed in the schema; no record decides it
    ledger: Path
    epsilon: float  # infinite in a rehearsal on records that need no protection
    delta: float
    smallest_multiplier: float
    largest_clip: float
    methods: tuple[str, ...]
    models: tuple[str, ...] = (HEAD,)
    secure_sum_min_clients: int = 0
    mask_key: Path | None = None
    witness: Path | None = None  # None: in the user's state folder
    peers: tuple[tuple[str, str], ...] = ()
    schema: Schema | None = None  # of the table
    test: Path | None = None  # records that no round sees
    unit: Unit = "record"  # whom epsilon protects,
    most: int | None = None  # and how many records of one may count; None where each record is one
    work: Work = field(default_factory=Work)

    @property
    def account(self) -> Account:
        return Account(self.ledger, self.witness)


_FIELDS: dict[str, dict[str, tuple[type, ...]]] = {
    "node": {
        "name": (str,),
        "data": (str,),
        "classes": (int,),
        "schema": (str,),
        "test": (str,),
        "ledger": (str,),
        "mask_key": (str,),
        "witness": (str,),
    },
    "budget": {"epsilon": (float, int, str), "delta": (float,), "unit": (str,), "records_per_person": (int,)},
    "limits": {
        "smallest_multiplier": (float, int),
        "largest_clip": (float, int),
        "methods": (list,),
        "models": (list,),
        "secure_sum_min_clients": (int,),
    },
}
_PATHS = ("data", "test", "ledger", "mask_key", "witness")
_OPTIONAL = {"schema", "test", "models", "secure_sum_min_clients", "mask_key", "witness", "unit", "records_per_person"}


def read_policy(path: str | Path) -> Policy:
    """The policy in a file; everything must be stated, and nothing else may be."""
    path = Path(path).expanduser().absolute()
    if not path.is_file():
        raise InputError(f"{path}: there is no such policy file; `fedsofim federation init` writes templates")
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path}: not a TOML file: {error}") from error
    check_format(POLICY, document, path)
    document.pop(POLICY.key, None)
    values = {k: v for section in _FIELDS for k, v in _section(path, document, section).items()}
    peers = document.pop("peers", {})
    if not isinstance(peers, dict) or not all(isinstance(v, str) for v in peers.values()):
        raise InputError(f'{path}: [peers] is {peers!r}; expected lines of the form name = "public mask key"')
    work = _work(path, document.pop("work", {}))
    for extra in set(document) - set(_FIELDS):
        raise InputError(f"{path}: {unknown('section', f'[{extra}]', [f'[{s}]' for s in _FIELDS])}")
    values |= {key: _beside(path, values[key]) for key in _PATHS if key in values}
    values |= {key: tuple(values[key]) for key in ("methods", "models") if key in values}
    values |= {"peers": tuple(peers.items()), "work": work}
    values |= _described(path, values)
    values["epsilon"] = _epsilon(path, values["epsilon"])
    values["most"] = values.pop("records_per_person", None)
    return _checked(path, Policy(**values))


def _section(path: Path, document: dict[str, Any], section: str) -> dict[str, Any]:
    fields, given = _FIELDS[section], document.get(section)
    if not isinstance(given, dict):
        raise InputError(f"{path}: the section [{section}] is missing; expected {', '.join(fields)} in it")
    for key, value in given.items():
        if key not in fields:
            raise InputError(f"{path}: [{section}] {unknown('field', key, fields)}")
        if not isinstance(value, fields[key]) or isinstance(value, bool):
            wanted = " or ".join(k.__name__ for k in fields[key])
            raise InputError(f"{path}: [{section}] {key} is {value!r}; expected {wanted}")
    for key in fields:
        if key not in given and key not in _OPTIONAL and not (key == "classes" and "schema" in given):
            raise InputError(f"{path}: [{section}] {key} is missing; nothing here has a default")
    return given


def _described(path: Path, values: Mapping[str, Any]) -> dict[str, Any]:
    """The schema, and the classes: those it lists."""
    if "schema" not in values:
        return {}
    where = _beside(path, values["schema"])
    schema = read_schema(where)
    classes = check_lists_classes(where, schema)
    if values.get("classes", classes) != classes:
        raise InputError(f"{path}: classes is {values['classes']}, and the schema lists {classes}; leave it out")
    return {"schema": schema, "classes": classes}


def check_lists_classes(path: Path, schema: Schema) -> int:
    """How many classes a node's schema lists; an error if it leaves them to the records, or if there are none."""
    if schema.task.kind != CLASSES:
        raise InputError(f"{path}: its label is of the task {schema.task}; nodes train classes so far")
    if schema.label is None or not schema.label.classes:
        raise InputError(
            f"{path}: lists no classes; a node's schema needs a column of kind label with its classes, so that no "
            "record decides them"
        )
    return len(schema.label.classes)


def _work(path: Path, given: Any) -> Work:
    known = {f.name: f.default for f in fields(Work)}
    if not isinstance(given, dict):
        raise InputError(f"{path}: [work] is {given!r}; expected a section with any of {', '.join(known)}")
    for key, value in given.items():
        if key not in known:
            raise InputError(f"{path}: [work] {unknown('field', key, known)}")
        if not is_whole(value) or not 1 <= value <= 10**9:
            raise InputError(f"{path}: [work] {key} is {value!r}; expected a whole number from 1 to 10^9")
    return Work(**given)


def _epsilon(path: Path, value: float | str) -> float:
    """The cap as a number. That there is none is said in one way only, so that nobody says it by accident."""
    if value == WITHOUT:
        return math.inf
    if isinstance(value, str) or value == math.inf:
        hint = f'a rehearsal without privacy is written epsilon = "{WITHOUT}"'
        raise InputError(f"{path}: [budget] epsilon is {value!r}; expected a number above 0; {hint}")
    return float(value)


def _beside(policy: Path, name: str) -> Path:
    return (policy.parent / Path(name).expanduser()).absolute()


def _checked(path: Path, p: Policy) -> Policy:
    def need(right: bool, text: str) -> None:
        if not right:
            raise InputError(f"{path}: {text}")

    need(is_name(p.name), f"name is {p.name!r}; expected up to 64 letters, digits, dots, spaces and dashes")
    need(p.classes >= 2, f"classes is {p.classes}; expected at least 2")
    need(p.unit in UNITS, f"unit is {p.unit!r}; expected one of {', '.join(UNITS)}")
    need(
        (p.most is None) == (p.unit == "record") and (p.most is None or 1 <= p.most <= 10**6),
        f"records_per_person is {p.most} where a {p.unit} is protected; expected how many records of a person or "
        "client may count, from 1 to 10^6, and nothing where each record is protected by itself",
    )
    need(p.smallest_multiplier >= 0, f"smallest_multiplier is {p.smallest_multiplier}; expected a number >= 0")
    need(0 < p.largest_clip < math.inf, f"largest_clip is {p.largest_clip}; expected a finite number above 0")
    need(p.secure_sum_min_clients >= 0, "secure_sum_min_clients is negative; expected 0 (never) or a number of clients")
    need(p.secure_sum_min_clients != 1, "secure_sum_min_clients is 1; a sum over one client hides nothing: 0 or >= 2")
    need(
        p.secure_sum_min_clients == 0 or (p.mask_key is not None and len(p.peers) >= p.secure_sum_min_clients - 1),
        "secure sums need mask_key in [node], and in [peers] the key of every other client",
    )
    need(bool(p.methods), "methods is empty; name the methods this node takes part in")
    for name in p.methods:
        if not isinstance(name, str) or not is_installed(name):
            raise InputError(f"{path}: {unknown('method', str(name), names())}")
    need(bool(p.models), "models is empty; name the models this node trains, or leave the line out: linear alone")
    for name in p.models:
        if not isinstance(name, str) or not is_installed(name, "model"):
            raise InputError(f"{path}: {unknown('model', str(name), models.names())}")
    _check_budget(path, p)
    return p


def _check_budget(path: Path, p: Policy) -> None:
    """A cap with noise, or neither."""
    rehearsal = p.epsilon == math.inf
    try:
        Budget(1.0 if rehearsal else p.epsilon, p.delta)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    if rehearsal != (p.smallest_multiplier == 0):
        why = f'epsilon is "{WITHOUT}", which protects nothing; for a rehearsal also set smallest_multiplier = 0'
        noiseless = "smallest_multiplier is 0; expected a number above 0: a release needs noise"
        raise InputError(f"{path}: {why if rehearsal else noiseless}")
