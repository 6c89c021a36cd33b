"""What a name means now: a stranger's method or model counts by its file's content, or by its package's version."""

from fedsofim import extensions, methods
from fedsofim.core.models import HEAD


def method_identity(name: str) -> str:
    """A method as it is now."""
    return name if name in methods.PUBLISHED else extensions.identity("method", name)


def model_identity(name: str) -> str:
    """The same of a model."""
    return name if name == HEAD else extensions.identity("model", name)
