"""Examples in docstrings, which begin with >>>, as code: without this they would be read as prose."""

import re

import griffe

EXAMPLE = re.compile(r"^>>> .*?(?=\n\n|\Z)", re.M | re.S)


class Doctests(griffe.Extension):
    """Fences every example of every docstring."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(lambda found: f"\n```pycon\n{found[0]}\n```\n", obj.docstring.value)
