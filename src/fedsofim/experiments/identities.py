"""What a name means now: a stranger's method or model counts by its file's content, or by its package's version."""

import json
from collections.abc import Mapping
from typing import Any

from fedsofim import extensions, methods, models


def method_identity(name: str) -> str:
    """A method as it is now."""
    return name if name in methods.PUBLISHED else extensions.identity("method", name)


def model_identity(name: str, settings: Mapping[str, Any] | None = None) -> str:
    """The same of a model, with what was set. The head has its former name, so that older rows keep their ids."""
    if models.is_head(name, settings):
        return HEAD_IN_ROWS
    found = models.spelled(name)
    what = found if found in models.OWN else extensions.identity("model", name)
    return f"{what} {json.dumps(models.resolve(name, settings), sort_keys=True)}" if settings else what


HEAD_IN_ROWS = "softmax_head"
