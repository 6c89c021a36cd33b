"""Which code made a row: a digest of a method's own files, and one of the engine around it.

Both are of what the files do: comments, docstrings and layout do not count. A row that a changed method made is not a
result of the method any more; a row of a changed engine may well be the same, so it is said and kept.
"""

import ast
import hashlib
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from fedsofim import methods
from fedsofim.experiments.identities import method_identity

SOURCE = Path(methods.__file__).parents[1]
ENGINE = ("core", "models", "simulation", "recipes", "native")  # what a result depends on beside its method


def code_of(method: str) -> dict[str, str]:
    """What would make a row of this method now."""
    return {"method": method_code(method), "engine": engine_code()}


def method_code(method: str) -> str:
    """Of one of ours: its file and the helpers that only methods use. Of a stranger's: what its name means now."""
    if method not in methods.PUBLISHED:
        return method_identity(method)
    folder = SOURCE / "methods"
    return _digest((folder / f"{method}.py", *sorted(folder.glob("_*.py"))))


def engine_code() -> str:
    files = [p for room in ENGINE for p in sorted((SOURCE / room).rglob("*")) if p.suffix in (".py", ".cc", ".h")]
    return _digest((*files, SOURCE / "data" / "partition.py"))


@lru_cache(maxsize=32)
def _digest(files: Iterable[Path]) -> str:
    sha = hashlib.sha256()
    for path in files:
        sha.update(
            f"{path.name}\n{what_it_does(path.read_text()) if path.suffix == '.py' else path.read_text()}".encode()
        )
    return sha.hexdigest()[:16]


def what_it_does(source: str) -> str:
    """A Python file without its comments, docstrings and layout.

    >>> what_it_does("def f():\\n    'Doc.'\\n    return 1  # one") == what_it_does("def f(): return 1")
    True
    """
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body: Any = getattr(node, "body", None)
        if isinstance(body, list) and body and _is_text(body[0]):
            node.body = body[1:]  # type: ignore[attr-defined]
    return ast.dump(tree, annotate_fields=False)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
