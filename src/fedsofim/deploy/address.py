"""Where a federation's SuperLink is reached, and whether it is encrypted."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Address:
    """Where a federation listens.

    >>> str(Address("fl.example.org"))
    'fl.example.org:9092'
    """

    host: str = "127.0.0.1"
    port: int = 9092
    insecure: bool = False  # no certificates and no keys: for rehearsals

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"
