"""For how many rounds of each job a ledger was charged."""

from pathlib import Path

from fedsofim.core.phase import Phase
from fedsofim.deploy import ledger_file


def rounds_charged(ledger: Path, through: int) -> dict[str, int]:
    """By job, up to the charge of a number; a job of which only preparations were asked has none."""
    query = (
        "SELECT asks.job, COUNT(DISTINCT asks.round) FROM charges JOIN asks ON charges.ask = asks.id "
        "WHERE charges.id <= ? AND asks.phase = ? GROUP BY asks.job"
    )
    with ledger_file.read(ledger) as db:
        return dict(db.execute(query, (through, str(Phase.ROUND))).fetchall())
