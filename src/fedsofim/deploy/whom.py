"""May a job ask this node, whom it protects considered? A policy says whom, and a job's terms say whom it would.

A node tells a server how many of those there are whom its policy protects, and nothing of how many records each has: so
a job is for exactly them. All that a ledger ever charged adds up to one epsilon, which protects the smallest unit that
any of it was about: a policy cannot promise persons what was charged for records.
"""

import math

from fedsofim.deploy.policy import Policy
from fedsofim.deploy.wire import Job
from fedsofim.errors import Refused
from fedsofim.protection import PROTECTED, UNITS

_NUMBERS = 2**26  # in memory, of records laid out by unit


def check_whom(policy: Policy, job: Job) -> None:
    """Refused where a job protects another unit than the policy, or lets too much of one count."""
    asked, wanted = PROTECTED[job.unit], PROTECTED[policy.unit]
    if UNITS.index(job.unit) < UNITS.index(policy.unit):
        raise Refused(
            f"the job protects {asked}, which is less than this node does: {wanted}. Order --unit {policy.unit}"
        )
    if job.unit != policy.unit:
        raise Refused(f"the job protects {asked}; this node's policy says {wanted}, and no more is told of its records")
    if policy.most is not None and job.places > policy.most:
        raise Refused(f"{job.places} records of a {job.unit} are to count; the most allowed here is {policy.most}")
    check_past(policy)


def check_past(policy: Policy) -> None:
    """Refused where the ledger holds what protected less than the policy says."""
    if policy.unit == "record" or not policy.ledger.exists():
        return
    before = [t.get("unit", "record") for t in policy.account.terms().values()]
    if any(UNITS.index(unit) < UNITS.index(policy.unit) for unit in before):
        raise Refused(
            f"this node's ledger holds charges of jobs that protected less than {PROTECTED[policy.unit]}, so its "
            "epsilon does not either; protect what it did before, or use records of which nothing was released"
        )


def check_places(job: Job, count: int) -> None:
    """Refused where so many units do not fit memory; decided by public numbers alone."""
    if count * job.places * math.prod(job.shape) > _NUMBERS:
        raise Refused(f"{count} units of {job.places} records do not fit this node's memory; order fewer of each")
