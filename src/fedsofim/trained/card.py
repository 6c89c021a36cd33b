"""A model card in plain words: what the model was trained on, what it cost, what is protected and what is not."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from fedsofim.core.budget import WITHOUT, in_words

if TYPE_CHECKING:
    from fedsofim.trained.model import Trained


def card_of(model: "Trained") -> list[str]:
    """The card, a line at a time."""
    return list(_lines(model, model.facts.get("training", {}), model.facts.get("privacy", {})))


def _lines(model: "Trained", training: Mapping[str, Any], privacy: Mapping[str, Any]) -> Iterator[str]:
    yield "# Model card"
    yield ""
    yield f"- What it does: tells {_listed(model.labels)} apart, from {_inputs(model)}"
    yield (
        f"- Data: {training.get('data', 'unknown')}, {training.get('records', 'unknown many')} training records at "
        f"{training.get('clients', 'unknown many')} clients ({training.get('partition', 'as given')})"
    )
    made = model.facts.get("versions", {}).get("fedsofim", "of an unknown version")
    yield (
        f"- Method: {training.get('method', 'unknown')}, {training.get('rounds', 'unknown many')} rounds, recipe "
        f"{training.get('recipe', 'unknown')}, by fedsofim {made}"
    )
    if (accuracy := model.facts.get("result", {}).get("final_accuracy")) is not None:
        yield f"- Accuracy: {accuracy:.2f} % of the test records{_baseline(model)}"
    yield f"- Budget: {_budget(privacy)}"
    if "job" in training:
        yield "- Accounts: the budget is the job's plan; what each node's own account says is in the job's certificate"
    yield from _protected(privacy)
    yield from _open(model, privacy)


def _inputs(model: "Trained") -> str:
    if model.schema is None:
        return f"{'x'.join(map(str, model.shape))} features"
    return f"the columns {_listed([c.name for c in model.schema.inputs], 12)}"


def _baseline(model: "Trained") -> str:
    share = model.facts.get("result", {}).get("majority_accuracy")
    return "" if share is None else f"; whoever always says the commonest class is right for {share:.2f} %"


def _budget(privacy: Mapping[str, Any]) -> str:
    if privacy.get("epsilon", WITHOUT) == WITHOUT:
        return "none: it was trained without noise, and nothing is promised about any record"
    return (
        f"epsilon {in_words(privacy['epsilon'])} at delta {privacy['delta']:g}, for replacing any one record of any "
        f"one client, over {privacy['releases']} releases ({privacy['trust']} trust)"
    )


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
        f"- Protected: whether any one record was in the training data and what it said, from {who}, this model and "
        "all its predictions, whatever else they know"
    )
    if privacy.get("note"):
        yield f"- Note: {privacy['note']}"


def _open(model: "Trained", privacy: Mapping[str, Any]) -> Iterator[str]:
    """What is not protected."""
    yield "- Not protected: each client's number of records, the names of the columns, the schema, the set of labels"
    yield "- Not protected: the test records; the accuracy above was computed from them without noise"
    if model.schema is not None and model.schema.person is not None:
        yield (
            f"- Not protected as a whole: a person with several records ('{model.schema.person.name}'); the promise is "
            "for each record, and grows with their number"
        )
    if model.schema is not None and model.schema.leaks:
        said = [f"{' and '.join(what)} of {column}" for column, what in model.schema.leaks.items()]
        yield f"- Read off the training records, which epsilon does not cover: {_listed(said)}"
    yield "- Not covered: what was tried before this run on the same records, such as a search for settings"


def _listed(values: Any, most: int = 8) -> str:
    shown = [str(v) for v in list(values)[:most]]
    return ", ".join(shown) + (f" and {len(values) - most} more" if len(values) > most else "")
