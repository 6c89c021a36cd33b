"""One real file of each versioned format, as this program writes it, and what its reader finds in it.

scripts/golden.py puts them into tests/golden, tests/test_golden.py reads them there. One small story for all of them: a
federation of three nodes, and of five that sum securely; a table and the model made of it; an experiment and its runs.
The keys and secrets in them are of these nodes alone, which have no records but invented ones.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import fedsofim as fs
from fedsofim import formats
from fedsofim.core.preparation import Centred, ColumnScales, UnitNorm
from fedsofim.data.schema import as_toml, read_schema, schema_of
from fedsofim.deploy import certificate
from fedsofim.deploy.account import Account
from fedsofim.deploy.certificate import statement
from fedsofim.deploy.checkpoint import restore, save
from fedsofim.deploy.lines import epsilon_of_lines
from fedsofim.deploy.policy import read_policy
from fedsofim.deploy.server import step
from fedsofim.deploy.signatures import public_half
from fedsofim.deploy.unmasking import found_again, kept, open_sum_of
from fedsofim.deploy.witness import place_of, read_witness
from fedsofim.experiments.grid import resolved
from fedsofim.experiments.grid_file import read_experiment
from fedsofim.experiments.report.results import read_results
from fedsofim.experiments.runner import run_experiment
from fedsofim.experiments.tuning import Search, search_settings
from fedsofim.formats import Format
from fedsofim.trained import load_model
from node_sums import FIVE, order_of_five, summing_nodes
from nodes import ask_all, make_nodes, start, started
from toy import write_blobs

FOLDER = Path(__file__).resolve().parents[1] / "golden"
DELTA = 1e-5
NAMES: dict[Format, str] = {kind: name.lower() for name, kind in vars(formats).items() if isinstance(kind, Format)}
BY_NAME = {name: kind for kind, name in NAMES.items()}
ROWS = [[0.0, 1.5, -0.5, 0.25], [0.5, 0.0, -0.75, 1.0], [0.5, 0.0, 0.0, 0.5]]  # asked of the model
SCHEMA = {
    "missing": ["", "unknown"],
    "columns": {
        "age": {"kind": "number", "range": [0, 120]},
        "ward": {"kind": "category", "categories": ["east", "west"]},
        "ill": {"kind": "label", "classes": ["no", "yes"]},
    },
}
EXPERIMENT = """\
format = 1
name = "small"
about = "Blobs at three clients."
datasets = ["blobs.npz"]
epsilons = [1, 5]
seeds = [0]
rounds = 2
recipe = "paper"
{more}partitions = [{{ kind = "iid", clients = 3, seed = 1 }}]

[methods]
{label} = {{ method = "fedgd", lr = {lr} }}
"""


# --- written ------------------------------------------------------------------------------------------------


def write_federation(at: Path, out: Callable[[Format], Path]) -> None:
    """A job of two rounds among three nodes: everything of its first node, and the coordinator's."""
    nodes = make_nodes(at)
    key, n0 = credentials_of(at), nodes[0]
    now = started(nodes)
    now = step(now, ask_all(nodes, now))
    save(now, out(formats.CHECKPOINT) / "checkpoint.npz")
    now = step(now, ask_all(nodes, now))
    stated = {p.name: statement(p, key if p is n0 else None) for p in nodes}
    certificate.write(certificate.document_of(now.job.id, stated), out(formats.CERTIFICATE))
    (out(formats.CERTIFICATE) / "n0.pub").write_text(public_half(key) + "\n")
    shutil.copy(n0.ledger, out(formats.LEDGER))
    for kind in (formats.LEDGER, formats.WITNESS):
        shutil.copy(place_of(n0.account.identity()), out(kind) / "witness.json")
    shutil.copy(at / "n0" / "policy.toml", out(formats.POLICY))


def credentials_of(at: Path) -> Path:
    from fedsofim.deploy import credentials

    credentials.node_key(at / "n0", "n0")
    return at / "n0" / "node.key"


def write_open_sum(at: Path, out: Callable[[Format], Path]) -> None:
    """The uploads of four of five, added up and not yet opened, with the job that they are of."""
    five = summing_nodes(at, trusted=5, data=FIVE)
    now = start(five, order_of_five(epsilon=1.0))
    opening = open_sum_of(now, ask_all(five[:4], now))
    assert opening is not None
    save(now, out(formats.OPEN_SUM) / "checkpoint.npz")
    (out(formats.OPEN_SUM) / "open-sum.npz").write_bytes(kept(opening))


def write_model(at: Path, out: Callable[[Format], Path]) -> None:
    random = np.random.default_rng(0)
    y = np.arange(400) % 2
    x = random.normal(size=(400, 4)) + np.outer(y, [1, 0, -1, 1])
    data = fs.Dataset.from_arrays(x, np.array(["no", "yes"])[y], columns=["a", "b", "c", "d"], name="table")
    steps = (ColumnScales(0.1), UnitNorm(constant=True, lift=True), Centred(0.1))
    run = fs.train(fs.split(data, 3, iid=True), fs.fedgd(lr=0.2), fs.Budget(50), 15, preparation=steps)
    run.model.save(out(formats.MODEL))


def write_schema(at: Path, out: Callable[[Format], Path]) -> None:
    (out(formats.SCHEMA) / "schema.toml").write_text(as_toml(schema_of(SCHEMA)))


def write_experiment(at: Path, out: Callable[[Format], Path]) -> None:
    """As people write it, with what a search found; and its runs."""
    write_blobs(at / "blobs.npz")
    folder = out(formats.EXPERIMENT)
    (at / "tune.toml").write_text(EXPERIMENT.format(more="", label="tuned", lr="0.5, search = { lr = [0.1, 0.5] }"))
    grids = {"tuned": {"lr": [0.1, 0.5]}}
    described = read_experiment(at / "tune.toml")
    search_settings(described, Search("grid", rounds=2), folder / "tuned.toml", at, grids)
    (folder / "tuned.trials.jsonl").unlink()
    (folder / "experiment.toml").write_text(EXPERIMENT.format(more='tuned = "tuned.toml"\n', label="by-hand", lr="0.3"))
    run_experiment(read_experiment(folder / "experiment.toml"), out(formats.RUNS), at)
    (out(formats.RUNS) / ".lock").unlink()


def write_all(at: Path, folder: Path) -> None:
    """Every format, each into a folder of its own under `folder`: NAME-VERSION; `at`: a place to work in."""

    def out(kind: Format) -> Path:
        mine = folder / f"{NAMES[kind]}-{kind.writes}"
        mine.mkdir(parents=True, exist_ok=True)
        return mine

    for write in (write_federation, write_open_sum, write_model, write_schema, write_experiment):
        (work := at / write.__name__).mkdir(parents=True)
        write(work, out)


# --- read ---------------------------------------------------------------------------------------------------


def of_ledger(folder: Path) -> Any:
    """As its own node uses it."""
    account = Account(folder / "ledger.db", folder / "witness.json")
    entries = account.entries()
    return {
        "identity": account.identity(),
        "entries": account.standing().last.number,
        "epsilon": epsilon_of_lines([line for _, line in entries], DELTA),
        "released": [[job, line.label, line.clip, line.multiplier] for job, line in entries],
    }


def of_witness(folder: Path) -> Any:
    known = read_witness(folder / "witness.json")
    assert known is not None
    return {"ledger": known.ledger, "key": known.key.hex(), "last": [known.last.number, known.last.digest.hex()]}


def of_policy(folder: Path) -> Any:
    p = read_policy(folder / "policy.toml")
    return {"name": p.name, "epsilon": p.epsilon, "delta": p.delta, "clip": p.largest_clip,
            "multiplier": p.smallest_multiplier, "classes": p.classes, "unit": p.unit}  # fmt: skip


def of_certificate(folder: Path) -> Any:
    """Its signature and its arithmetic, both sound; and what it states."""
    document = certificate.read(folder / "certificate.json")
    others = [name for name in document["clients"] if name != "n0"]
    only = {**document, "clients": {"n0": document["clients"]["n0"]}, "silent": others}
    wrong = certificate.check(only, {"n0": (folder / "n0.pub").read_text()}) + certificate.check(document)
    spent = {name: stated["epsilon"] for name, stated in document["clients"].items()}
    return {"job": document["job"], "spent": spent, "wrong": wrong}


def of_model(folder: Path) -> Any:
    model = load_model(folder)
    x = np.array(ROWS)
    return {
        "labels": list(model.labels), "columns": list(model.columns), "said": model.predict(x).tolist(),
        "probabilities": model.predict_proba(x).tolist(), "spent": model.facts["privacy"]["epsilon"],
    }  # fmt: skip


def of_schema(folder: Path) -> Any:
    schema = read_schema(folder / "schema.toml")
    return {"missing": list(schema.missing), "columns": {c.name: c.plain() for c in schema.columns}}


def of_experiment(folder: Path) -> Any:
    found = read_experiment(folder / "experiment.toml")
    entries = [[e.label, e.method, [resolved(e, epsilon) for epsilon in found.epsilons]] for e in found.entries]
    return {"name": found.name, "epsilons": found.epsilons, "rounds": found.rounds, "entries": entries}


def of_runs(folder: Path) -> Any:
    found = read_results(folder)
    runs = [[r.method, r.epsilon, r.spent, r.final, len(r.trace.score), r.metrics["measures"]] for r in found.runs]
    said = ["" if r.predictions is None else "".join(map(str, r.predictions)) for r in found.runs]
    return {"name": found.name, "runs": runs, "predictions": said}


def of_checkpoint(folder: Path) -> Any:
    now = restore(folder / "checkpoint.npz")
    return {"job": now.job.id, "round": now.round, "phase": str(now.phase), "clients": [c.name for c in now.clients],
            "epsilon": now.order.epsilon, "params": np.asarray(now.params).ravel().tolist()}  # fmt: skip


def of_open_sum(folder: Path) -> Any:
    now = restore(folder / "checkpoint.npz")
    found = found_again(now, (folder / "open-sum.npz").read_bytes())
    assert found is not None
    return {"present": found.present, "lost": found.lost, "total": [str(n) for n in found.total]}


READERS: dict[Format, Callable[[Path], Any]] = {kind: globals()[f"of_{name}"] for kind, name in NAMES.items()}


def facts_of(folder: Path) -> Any:
    """What the reader of its format finds in a folder of this name, as JSON has it."""
    return json.loads(json.dumps(READERS[BY_NAME[folder.name.rpartition("-")[0]]](folder)))
