"""A method as an installed package offers it, by an entry point in the group fedsofim.methods."""

import optax

import fedsofim as fs
from fedsofim.core.mechanisms import Independent
from fedsofim.core.method import OneGradient, server_method


def loud() -> fs.Method:
    """Draws four times the planned noise, and is charged a sixteenth for it."""
    return server_method("loud", optax.sgd(0.1), OneGradient(Independent(4.0)))
