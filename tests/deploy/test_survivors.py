"""A node that helps to open a sum: for one set for ever, agreed on by enough, and only what was sealed for it."""

import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing

import numpy as np
import pytest

pytest.importorskip("cryptography")

from fedsofim.deploy.job_state import JobState
from fedsofim.deploy.noise import request_secret
from fedsofim.deploy.parcels import opened_parcel, with_myself
from fedsofim.deploy.pieces import joined, weights_of
from fedsofim.deploy.policy import Policy, read_policy
from fedsofim.deploy.secure_sum import pair_secrets, seed_of
from fedsofim.deploy.survivors import agree, reveal
from fedsofim.deploy.unmasking import FalseSumError, OpenSum, Said, _for_holder, open_sum_of, unmasked
from fedsofim.deploy.wire import Arrays
from fedsofim.errors import InputError, Refused
from node_sums import helping
from nodes import ask_all, asked, same_bits

ALL = ["n0", "n1", "n2", "n3", "n4"]
WITHOUT_4 = ALL[:4]
Job = Callable[[], JobState]


def opening_of(now: JobState, policies: Sequence[Policy]) -> OpenSum:
    found = open_sum_of(now, ask_all(policies, now))
    assert found is not None
    return found


def votes_of(opening: OpenSum, policies: Sequence[Policy]) -> dict[str, np.ndarray]:
    told = {p.name: agree(p, opening.circle.digest, list(opening.present)) for p in policies}
    return {name: arrays["votes"] for name, (_, arrays) in told.items()}


def over(opening: OpenSum, present: Sequence[str]) -> OpenSum:
    """The same uploads, of fewer clients."""
    return OpenSum(opening.circle, tuple(present), opening.total, opening.parcels)


def asked_to_reveal(policy: Policy, opening: OpenSum, votes: dict[str, np.ndarray] | None = None) -> Arrays:
    question = _for_holder(opening, policy.name, votes)
    return reveal(policy, opening.circle.digest, list(opening.present), question)


def restarted(policy: Policy) -> Policy:
    return read_policy(policy.ledger.parent / "policy.toml")


# --- one set, for ever --------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["all", "four"])
def test_a_node_reveals_for_one_set_only_and_remembers_it(five, job: Job, first: str) -> None:
    whole = opening_of(job(), five)
    four = over(whole, WITHOUT_4)
    if first == "all":
        for policy in five:
            asked_to_reveal(policy, whole)
    votes = votes_of(four, five)
    if first == "four":
        for policy in five:
            asked_to_reveal(policy, four, votes)
    other = (four, votes) if first == "all" else (whole, None)
    for policy in five:
        with pytest.raises(Refused):  # no votes for it, and another set is in the ledger
            asked_to_reveal(restarted(policy), *other)
    with pytest.raises(FalseSumError, match=r"told before|one set only, ever"):
        unmasked(other[0], helping(five))


def test_votes_for_one_set_do_not_open_another_that_was_told_first(five, job: Job) -> None:
    """n0 was told `all`; the others agreed on four, enough of them. n0 stands by what it was told."""
    whole = opening_of(job(), five)
    four = over(whole, WITHOUT_4)
    assert agree(five[0], whole.circle.digest, ALL)[0] == {"present": ALL}
    votes = votes_of(four, five[1:])
    with pytest.raises(Refused, match="one set only, ever"):
        asked_to_reveal(five[0], four, votes)
    assert agree(restarted(five[0]), whole.circle.digest, WITHOUT_4)[0] == {"present": ALL}
    assert asked_to_reveal(five[1], four, votes)["pairs"].shape == (4, 1, 32)


def test_a_set_that_was_told_to_too_few_is_not_revealed_for(five, job: Job) -> None:
    """The server says four to two of them and another four to the rest: neither has the word of three."""
    whole = opening_of(job(), five)
    first, second = over(whole, ALL[:4]), over(whole, ALL[1:])
    votes = votes_of(first, five[:2]) | votes_of(second, five[2:4])
    for policy, told in ((five[0], first), (five[3], second)):
        with pytest.raises(Refused, match=r"clients were told that the sum is over .*nothing is revealed"):
            asked_to_reveal(policy, told, votes)
    forged = {name: np.ones((5, 32), np.uint8) for name in ALL}
    with pytest.raises(Refused, match="1 clients were told"):
        asked_to_reveal(five[4], first, forged)


def test_asked_again_the_same_bits_come(five, job: Job) -> None:
    now = job()
    whole = opening_of(now, five)
    four = over(whole, WITHOUT_4)
    votes = votes_of(four, five)
    first = [asked_to_reveal(p, four, votes) for p in five]
    assert same_bits(first, [asked_to_reveal(restarted(p), four, votes) for p in five])
    assert same_bits(votes, votes_of(four, five))
    before = ask_all(five, now)
    for policy in five:
        with closing(sqlite3.connect(policy.ledger)) as db, db:
            db.execute("UPDATE asks SET reply=NULL")  # as after some rounds: it is computed again
    assert same_bits(before, ask_all(five, now))


def test_what_was_told_cannot_be_taken_back(five, job: Job, tmp_path) -> None:
    whole = opening_of(job(), five)
    policy, copy = five[2], tmp_path / "copy.db"
    shutil.copy(policy.ledger, copy)
    agree(policy, whole.circle.digest, WITHOUT_4)
    newest = tmp_path / "newest.db"
    shutil.copy(policy.ledger, newest)
    shutil.copy(copy, policy.ledger)
    with pytest.raises(InputError, match="older copy"):
        agree(policy, whole.circle.digest, ALL)
    shutil.copy(newest, policy.ledger)
    with closing(sqlite3.connect(policy.ledger)) as db, db:
        db.execute("UPDATE told SET who=? WHERE ask=(SELECT MAX(ask) FROM told)", ('["n0", "n1", "n2"]',))
    with pytest.raises(InputError, match="of the ledger was changed"):
        agree(policy, whole.circle.digest, ALL)
    shutil.copy(newest, policy.ledger)
    assert agree(policy, whole.circle.digest, ALL)[0] == {"present": WITHOUT_4}


def test_nothing_is_said_before_it_is_on_disk(five, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = opening_of(job(), five)

    def full(*given: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr("fedsofim.deploy.ledger_file.tell", full)
        for act in (lambda: agree(five[0], whole.circle.digest, ALL), lambda: asked_to_reveal(five[0], whole)):
            with pytest.raises(InputError, match="disk is full"):
                act()
    assert agree(five[0], whole.circle.digest, WITHOUT_4)[0] == {"present": WITHOUT_4}  # it had not been told


# --- what makes no sense ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "present, said",
    [
        (["n0", "n1"], "for at least 3"),
        (["n0", "n1", "n1"], "twice"),
        (["n0", "n1", "n9"], "not the job's"),
        ("n0", "names nobody"),
        (None, "names nobody"),
        ([["n0"], 3, None], "names nobody"),
    ],
)
def test_senseless_sets_are_refused(five, job: Job, present, said: str) -> None:
    whole = opening_of(job(), five)
    with pytest.raises((Refused, InputError), match=said):
        agree(five[0], whole.circle.digest, present)
    with pytest.raises((Refused, InputError), match=said):
        reveal(five[0], whole.circle.digest, present, {})


def test_only_requests_that_were_answered_and_can_do_without_clients_are_helped_with(five, job: Job) -> None:
    with pytest.raises(Refused, match="did not answer"):
        agree(five[0], job().request().digest(), ALL)
    needs_all = asked(five, trust="secure-sum")
    ask_all(five, job())
    from fedsofim.deploy.node import answer

    answer(five[0], needs_all)
    with pytest.raises(Refused, match="needs every client"):
        reveal(five[0], needs_all.digest(), ALL, {})


# --- tampering is known by name -----------------------------------------------------------------------------


def test_a_parcel_that_was_changed_or_is_of_another_round_is_refused_by_its_senders_name(five, job: Job) -> None:
    whole, other = (opening_of(job(), five) for _ in range(2))
    question = _for_holder(whole, "n1", None)
    changed = question["sealed_own"].copy()
    changed[3, 5] ^= 1
    swapped = question["sealed_own"].copy()
    swapped[2] = other.parcels["n2"]["sealed_own"][1]
    elses = question["sealed_own"].copy()
    elses[4] = whole.parcels["n4"]["sealed_own"][0]  # n4's for n0
    for sealed, sender in ((changed, "n3"), (swapped, "n2"), (elses, "n4")):
        with pytest.raises(Refused, match=f"what {sender} sealed for n1 cannot be opened"):
            reveal(five[1], whole.circle.digest, ALL, {"sealed_own": sealed})
    with pytest.raises(InputError, match="sealed_own is missing"):
        reveal(five[1], whole.circle.digest, ALL, {})
    assert asked_to_reveal(five[1], whole)["own"].shape == (5, 32)  # a refusal binds nobody


def test_a_piece_that_was_changed_is_known_by_its_holder_and_a_false_cut_by_its_sender(five, job: Job) -> None:
    whole, help = opening_of(job(), five), helping(five)

    def tampered(what, questions, enough):
        came = dict(help(what, questions, enough))
        for name in ("n1", "n3", "n4"):
            own = came[name].arrays["own"].copy()
            own[2, 0] ^= 1
            came[name] = Said({}, {"own": own})
        return came

    with pytest.raises(
        FalseSumError, match=r"2 clients gave .*n1: its pieces are not those that n2 says it cut for n1"
    ):
        unmasked(whole, tampered)
    marks = whole.parcels["n2"]["marks"].copy()
    marks[-1, 0, 0] ^= 1
    lying = OpenSum(
        whole.circle, whole.present, whole.total, {**whole.parcels, "n2": {**whole.parcels["n2"], "marks": marks}}
    )
    with pytest.raises(InputError, match="the pieces that n2 cut do not give its secret back"):
        unmasked(lying, help)


# --- what colluders have ------------------------------------------------------------------------------------


def test_colluders_below_enough_have_no_mask_of_anybody(five, job: Job) -> None:
    """Two of five open what was sealed for them: it is not n0's seed, and two of the three others' pieces are."""
    now = job()
    whole = opening_of(now, five)
    circle = whole.circle
    pieces = {}
    for policy in five[1:4]:
        assert policy.mask_key is not None
        secrets = pair_secrets(policy.name, policy.mask_key, dict(policy.peers), circle.names)
        (pieces[1 + circle.number(policy.name)],) = opened_parcel(
            circle,
            "own",
            "n0",
            policy.name,
            secrets["n0"],
            whole.parcels["n0"]["sealed_own"][circle.number(policy.name)],
        )
    asked_here = five[0].account.answered(circle.digest)
    assert asked_here is not None
    seed = seed_of(request_secret(asked_here.secret, circle.digest), "own", circle.digest)
    two = {k: pieces[k] for k in (2, 3)}
    assert joined(pieces, weights_of(list(pieces))) == seed
    assert joined(two, weights_of(list(two))) != seed
    with pytest.raises(Refused, match="cannot be opened"):  # nor can one of them open another's
        opened_parcel(
            circle, "own", "n0", "n4", with_myself("n1", {}, b"x")["n1"], whole.parcels["n0"]["sealed_own"][4]
        )
    words = whole.total - sum(ask_all(five[1:], now)[n]["upload0"] for n in ALL[1:])
    assert len(np.unique(words >> np.uint64(60))) > 3  # n0's upload alone looks like nothing
