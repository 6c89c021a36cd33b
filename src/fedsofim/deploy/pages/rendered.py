"""A view as HTML and as JSON, and the rules under which a browser takes it.

The template escapes everything. If it did not, the browser would still run no script and load nothing but what has the
hash of our own two files (Content-Security-Policy), and make no markup of text (trusted types).
"""

import base64
import hashlib
import json
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from fedsofim.deploy.pages.view import View

if TYPE_CHECKING:
    from jinja2 import Template

#: Beside the policy below, with every response.
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def html_of(view: View, kind: str, token: str) -> str:
    """The whole page; `token` is what its forms send back."""
    from markupsafe import Markup

    style, script = (Markup(_file(name)) for name in ("page.css", "page.js"))  # ours, and nobody else's
    return _template().render(view=view, kind=kind, token=token, style=style, script=script)


def facts_of(view: View) -> str:
    """The same for the script."""
    return json.dumps(asdict(view), allow_nan=False)


@cache
def content_policy() -> str:
    return "; ".join(
        (
            "default-src 'none'",
            f"style-src '{_hash('page.css')}'",
            f"script-src '{_hash('page.js')}'",
            "img-src data:",
            "connect-src 'self'",
            "form-action 'self'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )


@cache
def _template() -> "Template":
    from jinja2 import Environment, StrictUndefined  # for those who want a page only

    return Environment(autoescape=True, undefined=StrictUndefined).from_string(_file("page.html"))


@cache
def _file(name: str) -> str:
    return files("fedsofim.deploy.pages").joinpath(name).read_text(encoding="utf-8")


def _hash(name: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(_file(name).encode()).digest()).decode()
