"""A model card in plain words: what the model was trained on, what it cost, what is protected and what is not."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from fedsofim.core.budget import WITHOUT
from fedsofim.core.budget import in_words as budget_in_words
from fedsofim.core.budgets import in_groups
from fedsofim.core.gaussian import epsilon_of
from fedsofim.data.partition import dealt_by_label
from fedsofim.protection import PROTECTED
from fedsofim.tasks import LABELS, NUMBERS
from fedsofim.trained.measures import SAID, in_words

if TYPE_CHECKING:
    from fedsofim.trained.model import Trained


#: Where a simulated run's noise was from, as a model's facts say it.
SEEDED, OF_ENTROPY = "seeded", "of the machine's entropy"


def card_of(model: "Trained") -> list[str]:
    """The card, a line at a time."""
    return list(_lines(model, model.facts.get("training", {}), model.facts.get("privacy", {})))


def _lines(model: "Trained", training: Mapping[str, Any], privacy: Mapping[str, Any]) -> Iterator[str]:
    yield "# Model card"
    yield ""
    yield f"- What it does: {_does(model)}, from {_inputs(model)}"
    records = f"{training.get('records', 'unknown many')} training {_counted(privacy)}"
    yield (
        f"- Data: {training.get('data', 'unknown')}, {records} at {training.get('clients', 'unknown many')} clients "
        f"({training.get('partition', 'as given')})"
    )
    made = model.facts.get("versions", {}).get("fedsofim", "of an unknown version")
    yield (
        f"- Method: {training.get('method', 'unknown')}, {training.get('rounds', 'unknown many')} rounds, recipe "
        f"{training.get('recipe', 'unknown')}, by fedsofim {made}"
    )
    if not model.is_head:
        yield f"- Model: {described(model.name, model.settings) or 'of its trainer, without a name'}"
    yield from _measured(model, model.facts.get("result", {}))
    for counted in model.facts.get("result", {}).get("private_evaluation", ())[-1:]:
        yield f"- Accuracy, counted at the nodes under noise: {counted['said'].removeprefix('accuracy ')}"
    yield f"- Budget: {_budget(privacy)}"
    if "job" in training:
        yield "- Accounts: the budget is the job's plan; what each node's own account says is in the job's certificate"
    yield from _protected(privacy)
    yield from _noise(training, privacy)
    yield from _open(model, privacy)


def _inputs(model: "Trained") -> str:
    if model.schema is None:
        return f"{'x'.join(map(str, model.shape))} features"
    return f"the columns {_listed([c.name for c in model.schema.inputs], 12)}"


def _does(model: "Trained") -> str:
    if model.task.by_class:
        return f"tells {_listed(model.labels)} apart"
    if model.task.kind == LABELS:
        return f"says yes or no to each of {_listed(model.labels)}"
    ends = f"from {model.task.ends[0]:g} to {model.task.ends[1]:g}, the public range of training"
    what = "estimates the number" if model.task.kind == NUMBERS else "estimates the mean of the count"
    return f"{what} {_listed(model.labels)}, {ends}"


def _measured(model: "Trained", result: Mapping[str, Any]) -> Iterator[str]:
    """The task's one number beside a constant answer's, then every other measure in the same way."""
    metric = model.task.metric
    if (found := result.get(f"final_{metric}")) is None:
        return
    base = result.get("baseline", {}).get(metric, result.get("majority_accuracy"))
    if metric == "accuracy":
        what = "of the labels of the test records" if model.task.kind == LABELS else "of the test records"
        who = "whoever always says the commonest class is right for"
        yield f"- Accuracy: {found:.2f} % {what}" + ("" if base is None else f"; {who} {base:.2f} %")
    else:
        beside = "" if base is None else f"; whoever always says their mean has {in_words(metric, base)}"
        yield f"- Error: RMSE {in_words(metric, found)} on the test records{beside}"
    rest = {k: v for k, v in result.get("measures", {}).items() if k != metric and v is not None}
    if rest:
        told = [f"{SAID[k][0]} {v:.4g} (constant answer {_plain(result['baseline'].get(k))})" for k, v in rest.items()]
        yield f"- Measured beside: {', '.join(told)}"


def _plain(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"


def _budget(privacy: Mapping[str, Any]) -> str:
    if privacy.get("epsilon", WITHOUT) == WITHOUT:
        return "none: it was trained without noise, and nothing is promised about any record"
    return (
        f"{_epsilon(privacy)}, for replacing any {_whom(privacy)}{_where(privacy)}, over "
        f"{privacy['releases']} releases ({privacy['trust']} trust)"
    )


def _epsilon(privacy: Mapping[str, Any]) -> str:
    """One for all, or each client's own."""
    if "each_client" in privacy:
        return f"each client its own: {in_groups([(c['epsilon'], c['delta']) for c in privacy['each_client']])}"
    return f"epsilon {budget_in_words(privacy['epsilon'])} at delta {privacy['delta']:g}"


def _whom(privacy: Mapping[str, Any]) -> str:
    """Models of before there were units protect records."""
    return str(privacy.get("protects", PROTECTED["record"]))


def _counted(privacy: Mapping[str, Any]) -> str:
    """What sizes are numbers of: how many records a person has is nobody's business."""
    return f"{next(unit for unit, words in PROTECTED.items() if words == _whom(privacy))}s"


def _where(privacy: Mapping[str, Any]) -> str:
    return " of any one client" if _whom(privacy) == PROTECTED["record"] else ""


def _protected(privacy: Mapping[str, Any]) -> Iterator[str]:
    if privacy.get("epsilon", WITHOUT) == WITHOUT:
        yield "- Protected: nothing"
        return
    who = (
        "anybody who sees every client's uploads"
        if privacy["trust"] == "local"
        else "anybody who sees sums over clients"
    )
    yield (
        f"- Protected: whether any {_whom(privacy)} was in the training data and what it said, from {who}, this model "
        "and all its predictions, whatever else they know"
    )
    if privacy.get("note"):
        yield f"- Note: {privacy['note']}"


def _noise(training: Mapping[str, Any], privacy: Mapping[str, Any]) -> Iterator[str]:
    """What simulated noise is worth: whoever knows its seed can take it off. Models of before had always one."""
    if privacy.get("epsilon", WITHOUT) == WITHOUT or "job" in training:
        return
    if training.get("noise") == OF_ENTROPY:
        yield "- Noise: a simulation's, in floating point, from 64 bits of the training machine's entropy, kept nowhere"
    else:
        yield (
            "- Not protected from whoever knows or guesses the seed of the noise: one was given, so that the run can "
            "be repeated, and with it the noise can be taken off. Train without a seed what is to be handed out"
        )


def _open(model: "Trained", privacy: Mapping[str, Any]) -> Iterator[str]:
    """What is not protected."""
    sizes = f"each client's number of {_counted(privacy)}"
    yield f"- Not protected: {sizes}, the names of the columns, the schema, {_public(model)}"
    yield f"- Not protected: the test records; the {_number(model)} above was computed from them without noise"
    of_records = _whom(privacy) == PROTECTED["record"]
    if model.schema is not None and model.schema.person is not None and of_records:
        yield (
            f"- Not protected as a whole: a person with several records ('{model.schema.person.name}'); the promise is "
            f"for each record, and grows with their number{_for_several(privacy)}"
        )
    if model.schema is not None and model.schema.leaks:
        said = [f"{' and '.join(what)} of {column}" for column, what in model.schema.leaks.items()]
        yield f"- Read off the training records, which epsilon does not cover: {_listed(said)}"
    if dealt_by_label(str(model.facts.get("training", {}).get("partition"))):
        yield "- Not protected: which client holds which record, which was decided by the labels of all"
    if "search" in privacy:
        yield f"- Covered by the budget: the search for its settings, {privacy['search']['way']}"
    else:
        yield "- Not covered: what was tried before this run on the same records, such as a search for settings"


def _for_several(privacy: Mapping[str, Any]) -> str:
    """What the ledger says of a person with some records (core/group.py)."""
    if privacy.get("mu") is None:
        return ""
    found = [f"epsilon {epsilon_of(k * privacy['mu'], privacy['delta']):.3g} with {k}" for k in (2, 5, 10)]
    return f": {', '.join(found)}"


def _public(model: "Trained") -> str:
    return "the set of labels" if model.task.metric == "accuracy" else "the public range"


def _number(model: "Trained") -> str:
    return "accuracy" if model.task.metric == "accuracy" else "error"


def _listed(values: Any, most: int = 8) -> str:
    shown = [str(v) for v in list(values)[:most]]
    return ", ".join(shown) + (f" and {len(values) - most} more" if len(values) > most else "")


def described(name: str, settings: Mapping[str, Any]) -> str:
    """A model in words.

    >>> described("mlp", {"hidden": (64, 64), "activation": "tanh"})
    'mlp, hidden 64 64, activation tanh'
    """
    told = [f"{k} {' '.join(map(str, v)) if isinstance(v, tuple | list) else v}" for k, v in settings.items()]
    return ", ".join([name, *(words.strip() for words in told)])
