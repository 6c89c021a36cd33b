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

    @property
    def inner(self) -> int:
        """The port on which the SuperLink itself listens, on 127.0.0.1 only: behind what the nodes reach."""
        return self.port + 1 if self.port < 65535 else self.port - 1

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"
