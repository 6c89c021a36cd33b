"""Small HTML for notebooks: facts about a thing, never a record."""

from collections.abc import Mapping
from html import escape
from typing import Any

_STYLE = "border-collapse:collapse;font-size:0.9em"
_CELL = "padding:2px 10px 2px 0;text-align:left;vertical-align:top;border:none;background:none"


def card(title: str, facts: Mapping[str, Any]) -> str:
    """A title above a table of facts.

    >>> card("A <b>", {"size": 3}).count("<tr>"), "A &lt;b&gt;" in card("A <b>", {})
    (1, True)
    """
    rows = "".join(
        f'<tr><th style="{_CELL};font-weight:600">{escape(str(k))}</th><td style="{_CELL}">{escape(str(v))}</td></tr>'
        for k, v in facts.items()
    )
    return f'<div><strong>{escape(title)}</strong><table style="{_STYLE}"><tbody>{rows}</tbody></table></div>'
