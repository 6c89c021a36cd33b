"""A finished run: everything a reader of the result needs, and the model that came out of it."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedsofim.core.accounting import Charge
from fedsofim.core.isolation import call_apart
from fedsofim.core.plan import Plan
from fedsofim.core.prepared import Prepared
from fedsofim.core.programs import upload_shapes
from fedsofim.core.summary import privacy_summary, spent_in_words
from fedsofim.data.cells import is_frame
from fedsofim.data.html import card
from fedsofim.data.partition import Split
from fedsofim.errors import InputError
from fedsofim.files import as_path, check_free, together, write_text
from fedsofim.methods._steps import steps_taken
from fedsofim.recipes import Choices
from fedsofim.simulation.environment import sums_by, versions
from fedsofim.simulation.history import History
from fedsofim.simulation.metrics import Metrics, metrics_of
from fedsofim.simulation.simulator import Trace
from fedsofim.trained.card import OF_ENTROPY, SEEDED
from fedsofim.trained.folder import FILES, save_model
from fedsofim.trained.measures import in_words
from fedsofim.trained.model import Trained, name_of

RESULT = "result.json"


@dataclass(frozen=True, kw_only=True)
class Run:
    """A finished run: parameters, the task's one number by round (accuracy, or RMSE), and the ledger its epsilon is
    derived from."""

    plan: Plan
    split: Split
    seed: int | None  # None: the noise is of this machine's entropy, and kept nowhere
    params: Any
    trace: Trace
    seconds: float
    chosen: Choices  # by the recipe; the plan has what was chosen by hand instead
    prepared: Prepared = Prepared()  # what the model does to records before its parameters meet them
    state: Any = ()  # the server's, after the last round

    @property
    def history(self) -> History:
        """What was measured after each evaluated round, as a table."""
        return History(self.plan.task.metric, self.trace)

    @property
    def final(self) -> float:
        """The task's one number after the last round: accuracy in percent, or RMSE in the answer's units."""
        return float(self.trace.score[-1])

    @property
    def accuracy(self) -> float:
        """Test accuracy in percent after the last round; by round it is in `history`."""
        self._expect_accuracy()
        return self.final

    def _expect_accuracy(self) -> None:
        if self.plan.task.metric != "accuracy":
            raise InputError(f"{self.plan.task.kind} have no accuracy; run.final is the RMSE, run.history by round")

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
        if isinstance(self.state, tuple) and not self.state:
            return {}
        mean = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), upload_shapes(self.plan.program))
        return steps_taken(self.plan.method.server, mean, self.state, self.params, self.plan.facts)

    @cached_property
    def metrics(self) -> Metrics:
        """Every measure of the task beside a constant answer's, and who the model is right for."""
        return metrics_of(self.split.dataset, self._outputs(self.split.dataset.x_test), self.split.parts)

    def predict(self, x: Any) -> np.ndarray:
        """Predicted classes, by number; of several labels 0 or 1 for each; numbers and counts in their units. Arrays
        are features as the run's dataset has them (records x features); a data frame has the columns that the dataset
        was made of, found by their names."""
        task = self.plan.task
        z = self.model.logits(self.model.features_of(x)) if is_frame(x) else self._outputs(x)
        return task.decided(z) if task.metric == "accuracy" else task.answers(z)

    def _outputs(self, x: Any) -> np.ndarray:
        wanted = self.split.dataset.x_train.shape[1:]
        expected = f"expected numbers of shape (records, {', '.join(map(str, wanted))}), as in training"
        try:
            x = np.asarray(x, np.float32)
        except (TypeError, ValueError):  # text, or rows of unequal length
            raise InputError(f"predict got a {type(x).__name__} that is no array of numbers; {expected}") from None
        if x.ndim != len(wanted) + 1 or x.shape[1:] != wanted:
            raise InputError(f"predict got an array of shape {x.shape}; {expected}")
        return np.asarray(self.plan.model.logits(self.params, jnp.asarray(self.prepared.map(x))))

    @property
    def model(self) -> Trained:
        """The model by itself, with all that belongs to it: to predict, save and export."""
        data = self.split.dataset
        return Trained(
            params=self.params,
            model=self.plan.model,
            name=name_of(self.plan.model),
            settings=dict(self.plan.model.settings),
            shape=data.x_train.shape[1:],
            labels=data.class_names,
            prepared=self.prepared,
            columns=data.columns,
            schema=data.schema,
            standardised=data.standardised,
            task=data.task,
            facts=self._facts(),
        )

    def module(self) -> Any:
        """The module that the model was made of (fs.from_flax and others), with the trained numbers in it.

        It takes records as the run prepared them: `run.prepared.map(x)`.
        """
        if self.plan.model.module is None:
            raise InputError("the model was not made of a module; run.params are its numbers, run.predict uses them")
        return call_apart(self.plan.model.module, self.params)

    def _facts(self) -> dict[str, Any]:
        p, data = self.plan, self.split.dataset
        notes = {k: v for k, v in data.notes.items() if k in ("source", "features", "test", "standardised", "clients")}
        training = {
            "data": data.name,
            "records": sum(p.sizes),  # or persons, or clients: what is public
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
            "noise": OF_ENTROPY if self.seed is None else SEEDED,
        }
        result = {**self._by_round(), **self.metrics.summary()}
        return {"training": training, "privacy": privacy_summary(p), "result": result, "versions": versions()}

    def _by_round(self) -> dict[str, Any]:
        """The task's one number under its name: final_accuracy, accuracy_by_round, or final_rmse, rmse_by_round."""
        metric = self.plan.task.metric
        rounded = {str(row["round"]): round(row[metric], 4) for row in self.history}
        return {f"final_{metric}": round(self.final, 4), f"{metric}_by_round": rounded}

    def summary(self) -> dict[str, Any]:
        """The run as plain data: what `--json` prints."""
        p, data = self.plan, self.split.dataset
        metric = data.task.metric
        measured = ((row["round"], row[metric]) for row in self.history)
        tens = {str(t): round(a, 4) for t, a in measured if t % 10 == 0 or t == p.rounds}
        return {
            "method": p.method.name,
            "settings": dict(p.method.settings),
            "steps": self.steps,
            "recipe": self.chosen.recipe,
            "chosen": dict(self.chosen.why),
            "by_hand": self.by_hand,
            "dataset": data.name,
            "task": data.task.plain(),
            "labels": [label.item() if isinstance(label, np.generic) else label for label in data.class_names],
            "columns": list(data.columns),
            "partition": self.split.description,
            "clients": len(p.sizes),
            "seed": self.seed,
            "preparation": [str(step) for step in p.preparation],
            **privacy_summary(p),
            metric: tens,
            **self._by_round(),
            **self.metrics.summary(),
            "seconds": round(self.seconds, 3),
            "versions": versions() | sums_by(),
        }

    def plot(self, path: str | Path) -> None:
        """Accuracy, or RMSE, over rounds, beside a constant answer's, as a picture in a file."""
        from fedsofim.simulation.figures import curves

        curves({self.plan.method.name: [self.trace]}, path, scale=self._scale())

    def figure(self) -> Any:
        """The same as a matplotlib figure, which a notebook shows."""
        from fedsofim.simulation.figures import curves_figure

        return curves_figure({self.plan.method.name: [self.trace]}, scale=self._scale())

    def _scale(self) -> Any:
        from fedsofim.simulation.figures import Scale

        return Scale(self.plan.task.metric, self.metrics.baseline[self.plan.task.metric])

    def save(
        self, folder: str | Path, *, force: bool = False, also: Mapping[str, Callable[[Path], Any]] | None = None
    ) -> Path:
        """The model (model.safetensors, model.json: fs.load_model reads them) and the run (result.json) in a folder.

        All files are written or none, and what is there already is kept unless forced.

        Args:
            folder: Where to.
            force: Overwrite what is there already.
            also: More files by name, each with what writes it, such as `{"curve.png": run.plot}`.
        """
        folder = as_path("the folder", folder)
        check_free(folder, (*FILES, RESULT), force)
        with together(folder) as part:
            save_model(self.model, part)
            write_text(part / RESULT, json.dumps(self.summary(), indent=2, default=str))
            for name, draw in (also or {}).items():
                draw(part / name)
        return folder

    def __repr__(self) -> str:
        """What came out and what it cost, never a record."""
        return f"<{self}>"

    def __str__(self) -> str:
        p = self.plan
        return (
            f"Run of {p.method.name} on {self.split.dataset.name}: {self._said(self.final)} after {p.rounds} "
            f"rounds, {p.budget}"
        )

    def _said(self, value: float | None) -> str:
        metric = self.plan.task.metric
        return in_words(metric, value) if metric == "accuracy" else f"RMSE {in_words(metric, value)}"

    def _repr_html_(self) -> str:
        p, found, metric = self.plan, self.metrics, self.plan.task.metric
        known = [(r, str(k)) for k, r in found.recall.items() if r is not None]
        worst = {"least recognised": f"{min(known)[1]}: {min(known)[0]:.2f} %"} if known else {}
        facts = {
            metric: f"{self._said(self.final)} on the test records after {p.rounds} rounds; a constant answer: "
            f"{self._said(found.baseline[metric])}",
            **worst,
            "budget": str(p.budget),
            "released": f"{p.releases} times, {spent_in_words(p)}",
            "method": f"{p.method.name}, recipe {self.chosen.recipe}",
            "data": str(self.split),
        }
        return card(f"Run of {p.method.name}", facts)
