"""May this be released, and at what price? From the node's own audit, its policy and the noise it will add."""

import math
from dataclasses import replace
from typing import NamedTuple

from fedsofim.core.audit import Program
from fedsofim.core.mechanisms import Tree
from fedsofim.core.phase import Phase
from fedsofim.core.pooled import can_pool
from fedsofim.core.queries import SecondMoment, ratio_of
from fedsofim.core.site import Site
from fedsofim.deploy.exact_sums import check_fits
from fedsofim.deploy.execute import Masked, coordinates
from fedsofim.deploy.lines import Line
from fedsofim.deploy.noise import (
    cost_of_round,
    draws_of_release,
    inner,
    is_plain,
    lattice_std,
    place_in_tree,
    scale_of_round,
)
from fedsofim.deploy.parcels import Circle, packed
from fedsofim.deploy.policy import Policy
from fedsofim.deploy.secure_sum import Shares, fewest_safe, masks, pair_secrets, seed_of, step_of, stream, trusted_among
from fedsofim.deploy.steps import OWN
from fedsofim.deploy.subtree_noise import check_draws
from fedsofim.deploy.whom import check_whom
from fedsofim.deploy.wire import MOST_ATTEMPTS, Arrays, Job, Programs, Request
from fedsofim.errors import Refused


class Priced(NamedTuple):
    """The stds of a program's sites, what they cost, and with whom the noise is shared if it is."""

    stds: dict[int, float]
    lines: list[Line]
    shares: Shares | None = None


def check_job(policy: Policy, job: Job) -> None:
    """May such a job be asked for here? A policy lists what is installed only, so nothing else is ever built."""
    if job.method not in policy.methods:
        raise Refused(f"the method {job.method[:64]} is not allowed here; allowed: {', '.join(policy.methods)}")
    if job.model not in policy.models:
        raise Refused(f"the model {job.model[:64]} is not allowed here; allowed: {', '.join(policy.models)}")
    check_whom(policy, job)
    if job.rounds > policy.work.rounds:
        raise Refused(f"the job has {job.rounds} rounds; the most allowed here is {policy.work.rounds}")
    if job.trust == "secure-sum":
        _check_sum(policy, job)


def check_terms(policy: Policy, request: Request) -> None:
    """What can be refused without looking at the program."""
    check_job(policy, request.job)
    _check_size(policy, "the request", sum(a.nbytes for a in request.arrays.values()))
    rounds = request.job.times(request.phase)
    if not 0 <= request.round < rounds:
        raise Refused(f"round {request.round + 1} of a job of {rounds} rounds does not exist")
    if request.attempt and (request.job.trust != "secure-sum" or not 0 < request.attempt <= MOST_ATTEMPTS):
        raise Refused("only a secure sum that came out false is asked for anew, and only so often")
    if request.job.trust == "secure-sum" and request.phase is Phase.SETUP:
        raise Refused(
            "only gradients and a preparation can be summed securely; a method's setup needs full noise (local)"
        )


def _check_size(policy: Policy, what: str, size: int) -> None:
    if size > policy.work.message_mb * 1_000_000:
        raise Refused(f"{what} has {size} bytes of arrays; the most allowed here is {policy.work.message_mb} MB")


def _check_sum(policy: Policy, job: Job) -> None:
    """May this node share its noise with these clients?"""
    fewest = policy.secure_sum_min_clients
    if fewest == 0:
        raise Refused("secure sums are not allowed here; this node adds full noise of its own (local)")
    if len(job.peers) < fewest:
        raise Refused(f"the sum is over {len(job.peers)} clients; the fewest allowed here is {fewest}")
    if policy.name not in dict(job.peers):
        raise Refused(f"the sum is over {', '.join(dict(job.peers))}, and not over {policy.name}")
    safe = fewest_safe(len(job.peers), _known(policy), fewest)
    if 0 < job.min_clients < safe:
        raise Refused(
            f"the sum may go on with {job.min_clients} of {len(job.peers)} clients; while this node trusts {fewest} of "
            f"the {_known(policy)} it knows, fewer than {safe} could be split into two sums. Order min-clients {safe}"
        )


def _known(policy: Policy) -> int:
    """How many clients this node knows, itself among them."""
    return len({policy.name, *dict(policy.peers)})


def priced(policy: Policy, request: Request, programs: Programs, size: int, seen: int | None = None) -> Priced:
    """The price of a request at a node with so many records, within its operator's limits; or Refused.

    `seen`: how many records the request is about, where these are others (held out).
    """
    seen = size if seen is None else seen
    program = programs.by_phase.get(request.phase)
    if program is None:
        raise Refused(f"the method {request.job.method} has no phase '{request.phase}'")
    if request.job.trust == "secure-sum":
        if seen > size:
            raise Refused("more records are held out than trained on; a secure sum has no room for them")
        return _priced_sum(policy, request, programs, program, size)
    stds, lines = _lines(policy, request, program)
    for line in lines:
        _check_multiplier(policy, line, line.multiplier * math.sqrt(line.releases / line.weight))  # of this very round
    for site in program.sites:
        _check_drawable(request, site, stds[site.number], coordinates(program.jaxpr)[site.number], seen)
    return Priced(stds, lines)


def _check_drawable(request: Request, site: Site, std: float, numbers: int, size: int) -> None:
    """Can this noise be drawn for so many records? Else the request is refused now, not when it has been charged."""
    tree = inner(site.noise)
    if isinstance(tree, Tree) and tree.honaker:
        check_draws(place_in_tree(tree, request.round)[0], numbers)
    if std > 0:
        drawn = lattice_std(std * scale_of_round(site.noise, request.round), ratio_of(site.query) * site.clip, numbers)
        check_fits(size, site.clip, step_of(drawn))


def _lines(policy: Policy, request: Request, program: Program) -> tuple[dict[int, float], list[Line]]:
    """Every release site's std with its line for the ledger."""
    asked = request.job.stds_of(policy.name).get(request.phase, [])
    if len(asked) != len(program.sites):
        raise Refused(f"{len(asked)} noise stds were given for {len(program.sites)} releases")
    rounds = request.job.times(request.phase)
    numbers = coordinates(program.jaxpr)
    _check_size(policy, "the answer", 8 * sum(numbers.values()))
    lines = []
    for site, charge, std in zip(program.sites, program.charges, asked, strict=True):
        _check_clip(policy, request.phase, site)
        times = charge.releases // rounds
        lines.append(
            Line(
                label=site.label,
                clip=site.clip,
                ratio=charge.ratio,
                multiplier=std / site.clip,
                releases=times,
                weight=times * cost_of_round(site.noise, request.round, rounds),
                sample=site.sample,
                coordinates=numbers[site.number] * draws_of_release(site.noise, rounds),
            )
        )
    return {site.number: std for site, std in zip(program.sites, asked, strict=True)}, lines


def _check_clip(policy: Policy, phase: Phase, site: Site) -> None:
    """Of what a method sums, whose clip the job names. A preparation's is the library's own, fixed by its features."""
    norm = math.sqrt(site.clip) if isinstance(site.query, SecondMoment) else site.clip  # of a record's vector
    if phase not in OWN and not norm <= policy.largest_clip:
        raise Refused(f"'{site.label}' clips at {norm:g}; the largest allowed here is {policy.largest_clip:g}")


def _check_multiplier(policy: Policy, line: Line, multiplier: float) -> None:
    if multiplier < policy.smallest_multiplier * (1 - 1e-9):
        raise Refused(
            f"'{line.label}' has noise multiplier {multiplier:.6g}; the smallest allowed here is "
            f"{policy.smallest_multiplier:g}"
        )


def _priced_sum(policy: Policy, request: Request, programs: Programs, program: Program, size: int) -> Priced:
    """A release into a secure sum: priced at the noise that the trusted clients draw altogether (secure_sum.py).

    A gradient of a round or the one sum of a step: whichever, it is all that leaves of this phase.
    """
    job = request.job
    plain = can_pool(programs.method) and programs.method.setup is None
    if not plain or len(program.sites) != 1 or not is_plain(program.sites[0].noise):
        raise Refused(f"{job.method} does more than release one gradient a round; it needs full noise (local)")
    if dict(job.peers)[policy.name] != size:
        raise Refused(f"the sum counts {dict(job.peers)[policy.name]} records of {policy.name}, which is wrong")
    if job.ledgers.get(policy.name) != policy.account.standing().ledger:
        raise Refused(
            f"the job was begun with another ledger of {policy.name} than it has now, which knows nothing of the noise "
            "that it drew; start a new job"
        )
    stds, (line,) = _lines(policy, request, program)
    shares = Shares.of(job.peers, job.weights, job.min_clients)
    honest = trusted_among(shares.enough, _known(policy), policy.secure_sum_min_clients)
    multiplier = shares.multiplier(policy.name, line.multiplier, honest)
    _check_multiplier(policy, line, multiplier)
    of = f"{job.clients}" if shares.enough == job.clients else f"{shares.enough} of {job.clients}"
    ties = line.coordinates * honest  # of every draw that is relied on
    line = replace(line, label=f"{line.label} (secure sum of {of})", multiplier=multiplier, coordinates=ties)
    return Priced(stds, [line], shares)


def masking(policy: Policy, request: Request, program: Program, shares: Shares) -> Masked:
    """This node's factor, share of the noise and masks for one request."""
    assert policy.mask_key is not None  # the policy was checked for it
    (site,), (count,) = program.sites, coordinates(program.jaxpr).values()
    std = shares.std(request.job.stds[request.phase][0], ratio_of(site.query) * site.clip, count)
    secrets = pair_secrets(policy.name, policy.mask_key, dict(policy.peers), shares.names)
    mask = masks(policy.name, secrets, request.digest(), count)
    factor = shares.factors[shares.names.index(policy.name)]
    check_fits(dict(request.job.peers)[policy.name], site.clip, step_of(std) / factor)
    return Masked(factor, std, mask)


def hidden(policy: Policy, request: Request, how: Masked, own: bytes) -> tuple[Masked, Arrays]:
    """How to release where clients may be lost, under a mask of the node's own too, and the parcels that go with it."""
    circle = Circle.of(request.job, request.digest())
    if circle is None or policy.mask_key is None:
        return how, {}
    secrets = pair_secrets(policy.name, policy.mask_key, dict(policy.peers), circle.names)
    mask = how.mask + stream(seed_of(own, "own", circle.digest), len(how.mask))
    return replace(how, mask=mask), packed(circle, policy.name, secrets, own)
