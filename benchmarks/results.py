"""Everything a run of the suite measured, as plain data: what the page, the figure and performance.json show."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from clock import Ratio
from growth import Curve
from targets import Target


@dataclass(frozen=True)
class Line:
    """Something timed, relative to something else that its table names."""

    name: str
    ratio: Ratio


@dataclass(frozen=True)
class PeerLine:
    """A peer's time over ours; or the reason why there is none."""

    name: str
    version: str
    ratio: Ratio | None
    reason: str = ""


@dataclass(frozen=True)
class StepLine:
    """A server step's time over Adam's at d parameters, and its memory in units of d numbers."""

    name: str
    d: int
    over_adam: Ratio
    kept: float
    scratch: float


@dataclass(frozen=True)
class Results:
    machine: dict[str, str] = field(default_factory=dict)
    targets: tuple[Target, ...] = ()
    reference: tuple[Line, ...] = ()  # over the faster pair of products
    parts: tuple[Line, ...] = ()  # over the faster pair of products
    kernel: dict[str, float] = field(default_factory=dict)  # over the multiplications of both products alone
    multiplications: float = 0.0  # seconds of one thread that does nothing else
    native: str = ""  # why sums were left to XLA
    peers: tuple[PeerLine, ...] = ()
    networks: tuple[Line, ...] = ()  # our round over a plain gradient
    network_peers: tuple[PeerLine, ...] = ()
    padding: tuple[Line, ...] = ()  # per record, over the reference round of the same kind
    steps: tuple[StepLine, ...] = ()
    curves: tuple[Curve, ...] = ()
    fresh: dict[str, dict[str, float]] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Nothing failed: peers may be missing, but none may be wrong."""
        return not any(p.reason.startswith("wrong") for p in (*self.peers, *self.network_peers))


def save(results: Results, path: Path) -> None:
    path.write_text(json.dumps(_rounded(asdict(results)), indent=1, ensure_ascii=False) + "\n")


def load(path: Path) -> Results:
    """What `save` wrote."""
    plain = json.loads(path.read_text())
    kinds: dict[str, Any] = {
        "targets": Target, "reference": Line, "parts": Line, "peers": PeerLine, "padding": Line, "steps": StepLine,
        "curves": Curve, "networks": Line, "network_peers": PeerLine,
    }  # fmt: skip
    built: dict[str, Any] = {k: tuple(_build(kind, v) for v in plain.get(k, ())) for k, kind in kinds.items()}
    return Results(**(plain | built))


def _build(kind: Any, values: dict[str, Any]) -> Any:
    ratios = ("ratio", "measured", "over_adam")
    return kind(
        **{
            k: Ratio(**v) if k in ratios and v is not None else tuple(v) if isinstance(v, list) else v
            for k, v in values.items()
        }
    )


def _rounded(value: Any) -> Any:
    """Four digits: more would be noise."""
    if isinstance(value, dict):
        return {k: _rounded(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(v) for v in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value
