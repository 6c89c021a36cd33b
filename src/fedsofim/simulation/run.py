"""A finished run: everything a reader of the result needs, and the model that came out of it."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedsofim.core.accounting import Charge
from fedsofim.core.plan import Plan
from fedsofim.core.prepared import Prepared
from fedsofim.core.programs import upload_shapes
from fedsofim.core.summary import privacy_summary
from fedsofim.data.cells import is_frame
from fedsofim.data.html import card
from fedsofim.data.partition import Split
from fedsofim.errors import InputError
from fedsofim.files import check_free, write_text
from fedsofim.methods._steps import steps_taken
from fedsofim.recipes import Choices
from fedsofim.simulation.environment import versions
from fedsofim.simulation.metrics import Metrics, metrics_of
from fedsofim.simulation.simulator import Trace
from fedsofim.trained.folder import FILES, save_model
from fedsofim.trained.model import Trained, name_of

RESULT = "result.json"


@dataclass(frozen=True, kw_only=True)
class Run:
    """A finished run: parameters, test accuracy by round, and the ledger its epsilon is derived from."""

    plan: Plan
    split: Split
    seed: int
    params: Any
    trace: Trace
    seconds: float
    chosen: Choices  # by the recipe; the plan has what was chosen by hand instead
    prepared: Prepared = Prepared()  # what the model does to records before its parameters meet them
    state: Any = ()  # the server's, after the last round
    model_name: str = ""  # of a model of one's own

    @property
    def accuracy(self) -> dict[int, float]:
        """Test accuracy in percent after each evaluated round."""
        return {int(t): float(a) for t, a in zip(self.trace.rounds, self.trace.accuracy, strict=True)}

    @property
    def final_accuracy(self) -> float:
        return float(self.trace.accuracy[-1])

    @property
    def ledger(self) -> tuple[Charge, ...]:
        return self.plan.ledger

    @property
    def by_hand(self) -> list[str]:
        """Which of the recipe's choices were set otherwise."""
        p, c = self.plan, self.chosen
        pairs = {
            "method": (p.method.name, c.method),
            "rounds": (p.rounds, c.rounds),
            "clip": (p.clip, c.clip),
            "weights": (p.weights, c.weights),
            "preparation": (p.preparation, c.preparation),
        }
        return [name for name, (ours, theirs) in pairs.items() if ours != theirs]

    @cached_property
    def steps(self) -> dict[str, float]:
        """The automatic steps as they were taken; empty where they were given by hand."""
        if self.state == ():
            return {}
        mean = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), upload_shapes(self.plan.program))
        return steps_taken(self.plan.method.server, mean, self.state, self.params, self.plan.facts)

    @cached_property
    def metrics(self) -> Metrics:
        """Who the model is right for: by class, client and public group."""
        return metrics_of(self.split.dataset, self.predict(self.split.dataset.x_test), self.split.parts)

    def predict(self, x: Any) -> np.ndarray:
        """Predicted classes, by number. Arrays are features as the run's dataset has them (records x features); a data
        frame has the columns that the dataset was made of, found by their names."""
        if is_frame(x):
            numbers = {label: i for i, label in enumerate(self.model.labels)}
            return np.array([numbers[label] for label in self.model.predict(x).tolist()])
        wanted = self.split.dataset.x_train.shape[1:]
        expected = f"expected numbers of shape (records, {', '.join(map(str, wanted))}), as in training"
        try:
            x = np.asarray(x, np.float32)
        except (TypeError, ValueError):  # text, or rows of unequal length
            raise InputError(f"predict got a {type(x).__name__} that is no array of numbers; {expected}") from None
        if x.ndim != len(wanted) + 1 or x.shape[1:] != wanted:
            raise InputError(f"predict got an array of shape {x.shape}; {expected}")
        return np.asarray(self.plan.model.logits(self.params, jnp.asarray(self.prepared.map(x)))).argmax(axis=-1)

    @property
    def model(self) -> Trained:
        """The model by itself, with all that belongs to it: to predict, save and export."""
        data = self.split.dataset
        return Trained(
            params=self.params,
            model=self.plan.model,
            name=name_of(self.plan.model, self.model_name),
            shape=data.x_train.shape[1:],
            labels=data.class_names,
            prepared=self.prepared,
            columns=data.columns,
            schema=data.schema,
            standardised=data.standardised,
            facts=self._facts(),
        )

    def _facts(self) -> dict[str, Any]:
        p, data = self.plan, self.split.dataset
        notes = {k: v for k, v in data.notes.items() if k in ("source", "features", "test", "standardised", "clients")}
        training = {
            "data": data.name,
            "records": len(data.y_train),
            "notes": notes,
            "partition": self.split.description,
            "clients": len(p.sizes),
            "method": p.method.name,
            "settings": dict(p.method.settings),
            "steps": self.steps,
            "recipe": self.chosen.recipe,
            "by_hand": self.by_hand,
            "rounds": p.rounds,
            "clip": p.clip if np.isfinite(p.clip) else None,
            "weights": p.weights,
            "seed": self.seed,
        }
        result = {
            "final_accuracy": round(self.final_accuracy, 4),
            "accuracy_by_round": {str(t): round(a, 4) for t, a in self.accuracy.items()},
            **self.metrics.summary(),
        }
        return {"training": training, "privacy": privacy_summary(p), "result": result, "versions": versions()}

    def summary(self) -> dict[str, Any]:
        """The run as plain data: what `--json` prints."""
        p, data = self.plan, self.split.dataset
        tens = {str(t): round(a, 4) for t, a in self.accuracy.items() if t % 10 == 0 or t == p.rounds}
        return {
            "method": p.method.name,
            "settings": dict(p.method.settings),
            "steps": self.steps,
            "recipe": self.chosen.recipe,
            "chosen": dict(self.chosen.why),
            "by_hand": self.by_hand,
            "dataset": data.name,
            "labels": [label.item() if isinstance(label, np.generic) else label for label in data.class_names],
            "columns": list(data.columns),
            "partition": self.split.description,
            "clients": len(p.sizes),
            "seed": self.seed,
            "preparation": [str(step) for step in p.preparation],
            **privacy_summary(p),
            "accuracy": tens,
            "accuracy_by_round": {str(t): round(a, 4) for t, a in self.accuracy.items()},
            "final_accuracy": round(self.final_accuracy, 4),
            **self.metrics.summary(),
            "seconds": round(self.seconds, 3),
            "versions": versions(),
        }

    def plot(self, path: str | Path) -> None:
        """Accuracy over rounds, as a picture in a file."""
        from fedsofim.simulation.figures import curves

        curves({self.plan.method.name: [self.trace]}, path)

    def figure(self) -> Any:
        """The same as a matplotlib figure, which a notebook shows."""
        from fedsofim.simulation.figures import curves_figure

        return curves_figure({self.plan.method.name: [self.trace]})

    def save(self, folder: str | Path, *, force: bool = False) -> Path:
        """The model (model.safetensors, model.json: fs.load_model reads them) and the run (result.json) in a folder.

        Each file is whole or not at all, and what is there already is kept unless forced.
        """
        folder = Path(folder)
        check_free(folder, (*FILES, RESULT), force)
        save_model(self.model, folder, force=force)
        write_text(folder / RESULT, json.dumps(self.summary(), indent=2, default=str))
        return folder

    def __repr__(self) -> str:
        """What came out and what it cost, never a record."""
        return f"<{self}>"

    def __str__(self) -> str:
        p = self.plan
        return (
            f"Run of {p.method.name} on {self.split.dataset.name}: {self.final_accuracy:.2f} % after {p.rounds} "
            f"rounds, {p.budget}"
        )

    def _repr_html_(self) -> str:
        p, found = self.plan, self.metrics
        worst = min((r, str(k)) for k, r in found.recall.items() if r is not None)
        facts = {
            "accuracy": f"{self.final_accuracy:.2f} % of the test records after {p.rounds} rounds; the commonest class "
            f"alone: {found.majority:.2f} %",
            "least recognised class": f"{worst[1]}: {worst[0]:.2f} %",
            "budget": str(p.budget),
            "released": f"{p.releases} times, epsilon {p.epsilon:.4g}",
            "method": f"{p.method.name}, recipe {self.chosen.recipe}",
            "data": str(self.split),
        }
        return card(f"Run of {p.method.name}", facts)
