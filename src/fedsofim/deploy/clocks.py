"""Is this machine's clock right? A node's calls are signed with their time, and hold for seconds only."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

NOTICED = 4.0  # seconds of difference that are reported
_AHEAD, _BEHIND = 4.0, -295.0  # Flower turns away calls that are 5 s ahead or 305 s behind


def ahead_of(date: str | None, now: datetime) -> float | None:
    """Seconds that this machine is ahead of the clock in an HTTP `Date` header; None if there is no such time."""
    try:
        then = parsedate_to_datetime(date or "")
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    if then.tzinfo is None:
        then = then.replace(tzinfo=UTC)
    ahead = (now - then).total_seconds()
    return ahead - min(1.0, max(0.0, ahead))  # a header has whole seconds


def is_off(ahead: float) -> bool:
    """Is the difference so large that the coordinator turns calls away, or about to be?"""
    return not _BEHIND < ahead < _AHEAD


def in_words(ahead: float) -> str:
    """Such as "30 s ahead of"."""
    return f"{abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'}"
