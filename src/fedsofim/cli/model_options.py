"""`--model` and `--set-model`, of the commands that take a model."""

from dataclasses import dataclass
from typing import Annotated

import typer

from fedsofim import models
from fedsofim.core.models import HEAD, Model
from fedsofim.settings import parse_pairs


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    model: Annotated[str, typer.Option(help="A model's name (see `fedsofim models`), or your own ./mine.py.")] = HEAD
    set_model: Annotated[
        list[str] | None, typer.Option(help="A model parameter, name=value, as hidden=64,64; repeatable.")
    ] = None

    @property
    def model_settings(self) -> dict[str, str]:
        return parse_pairs(self.set_model or [], "--set-model", "hidden=64,64")

    @property
    def made(self) -> Model | None:
        """The model; None: the linear one as the recipe starts it."""
        return models.unless_head(self.model, self.model_settings)
