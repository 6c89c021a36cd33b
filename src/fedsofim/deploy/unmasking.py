"""The coordinator's side of a secure sum that can do without some clients: whom it is over, and how its masks go.

What is needed of the uploads is only their sum and their parcels. Once it is fixed whom the sum is over, that never
changes: nodes stand by the first set they were told (survivors.py). So an open sum is kept on disk before anybody is
told, and a coordinator that comes back goes on with it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn
from zipfile import BadZipFile

import numpy as np

from fedsofim.deploy.job_state import JobState
from fedsofim.deploy.packing import from_bytes, to_bytes
from fedsofim.deploy.parcels import Circle, mark
from fedsofim.deploy.pieces import PIECE, joined, weights_of
from fedsofim.deploy.secure_sum import added, pair_mask, stream
from fedsofim.deploy.survivors import AGREE, REVEAL, VOTE
from fedsofim.deploy.wire import Arrays
from fedsofim.errors import InputError
from fedsofim.formats import OPEN_SUM, check_format


class Said(NamedTuple):
    """A question to a node, or its answer: facts and arrays. An answer with "refused" among its facts is none."""

    facts: Mapping[str, Any]
    arrays: Arrays


#: (what, a question for each client, how many answers are enough) -> what came, by client
Exchange = Callable[[str, Mapping[str, Said], int], Mapping[str, Said]]


class TooFew(InputError):
    """Too few clients helped to open a sum; nothing is lost, it can be tried again."""


class FalseSumError(InputError):
    """A sum that opens to nonsense, or that never opens: somebody in it answered falsely.

    Attributes:
        present: Who is in the sum.
        accused: Who of them is known to have spoiled it; empty where the sum does not tell.
    """

    def __init__(self, why: str, present: Sequence[str], accused: Sequence[str] = ()) -> None:
        super().__init__(why)
        self.present, self.accused = tuple(present), tuple(accused)


@dataclass(frozen=True)
class OpenSum:
    """Masked uploads of those present, added up, with their parcels by sender."""

    circle: Circle
    present: tuple[str, ...]  # in the job's order
    total: np.ndarray
    parcels: Mapping[str, Arrays]

    @property
    def lost(self) -> tuple[str, ...]:
        return tuple(name for name in self.circle.names if name not in self.present)


def open_sum_of(now: JobState, uploads: Mapping[str, Arrays]) -> OpenSum | None:
    """The sum of sound uploads, to be unmasked with the clients' help; None for a job that needs no help."""
    circle = Circle.of(now.job, now.request().digest())
    if circle is None:
        return None
    present = tuple(name for name in circle.names if name in uploads)
    parcels = {name: {key: uploads[name][key] for key in circle.shapes} for name in present}
    return OpenSum(circle, present, added([uploads[name]["upload0"] for name in present]), parcels)


def unmasked(opening: OpenSum, exchange: Exchange) -> np.ndarray:
    """Σ of the uploads with all masks off, modulo 2^64: one exchange if all are present, else two."""
    votes = _agreed(opening, exchange) if opening.lost else None
    asked = {
        name: Said({"present": list(opening.present)}, _for_holder(opening, name, votes))
        for name in opening.circle.names
    }
    came = exchange(REVEAL, _about(opening, asked), opening.circle.enough)
    pieces, trouble = _sound(opening, came)
    if len(pieces) < opening.circle.enough:
        never = {n for n in trouble if "refused" not in came[n].facts or came[n].facts.get("never") is True}
        _fail(opening, "gave the pieces that open the sum", len(pieces), trouble, never)
    return _without_masks(opening, {name: pieces[name] for name in list(pieces)[: opening.circle.enough]})


# --- questions ----------------------------------------------------------------------------------------------


def _agreed(opening: OpenSum, exchange: Exchange) -> dict[str, np.ndarray]:
    """The votes of clients for this set, each for all others."""
    asked = {name: Said({"present": list(opening.present)}, {}) for name in opening.circle.names}
    came, votes, trouble = exchange(AGREE, _about(opening, asked), opening.circle.enough), {}, dict[str, str]()
    never = set[str]()
    for name, said in came.items():
        given = said.arrays.get("votes")
        never |= {name} if said.facts.get("never") is True else set()
        if "refused" in said.facts:
            trouble[name] = str(said.facts["refused"])
        elif said.facts.get("present") != list(opening.present):
            trouble[name] = f"it stands by a sum over {said.facts.get('present')}, which it was told before"
            never.add(name)
        elif given is None or given.dtype != np.uint8 or given.shape != (len(opening.circle.names), VOTE):
            trouble[name] = "its votes make no sense"
        else:
            votes[name] = given
    if len(votes) < opening.circle.enough:
        _fail(opening, f"agreed to a sum over {', '.join(opening.present)}", len(votes), trouble, never)
    return votes


def _about(opening: OpenSum, asked: Mapping[str, Said]) -> dict[str, Said]:
    return {name: said._replace(facts={**said.facts, "digest": opening.circle.digest}) for name, said in asked.items()}


def _for_holder(opening: OpenSum, name: str, votes: Mapping[str, np.ndarray] | None) -> Arrays:
    """What one client needs to open its parcels; those of pairs only where somebody is lost, with the votes for it."""
    k = opening.circle.number(name)
    parts = ("sealed_own",) if votes is None else ("sealed_own", "sealed_pairs")
    out = {part: np.stack([opening.parcels[sender][part][k] for sender in opening.present]) for part in parts}
    if votes is not None:
        nothing = np.zeros(VOTE, np.uint8)
        out["votes"] = np.stack([votes[voter][k] if voter in votes else nothing for voter in opening.circle.names])
    return out


# --- answers ------------------------------------------------------------------------------------------------


def _sound(opening: OpenSum, came: Mapping[str, Said]) -> tuple[dict[str, Arrays], dict[str, str]]:
    """Pieces as they were handed out, by holder, and what is wrong with the rest."""
    sound, trouble = {}, {}
    for name, said in came.items():
        why = str(said.facts["refused"]) if "refused" in said.facts else _fault(opening, name, said.arrays)
        if why:
            trouble[name] = why
        else:
            sound[name] = said.arrays
    return sound, trouble


def _fault(opening: OpenSum, holder: str, arrays: Arrays) -> str:
    wanted = {"own": (len(opening.present), PIECE)}
    wanted |= {"pairs": (len(opening.present), len(opening.lost), PIECE)} if opening.lost else {}
    if {key: a.shape for key, a in arrays.items()} != wanted or any(a.dtype != np.uint8 for a in arrays.values()):
        return f"it sent {sorted(arrays)} of another form than {wanted}"
    for i, sender in enumerate(opening.present):
        marks = opening.parcels[sender]["marks"][opening.circle.number(holder)]
        given = [(0, arrays["own"][i])]
        given += [(1 + opening.circle.number(other), arrays["pairs"][i, j]) for j, other in enumerate(opening.lost)]
        if any(mark(piece.tobytes()) != marks[secret].tobytes() for secret, piece in given):
            return f"its pieces are not those that {sender} says it cut for {holder}"
    return ""


def _without_masks(opening: OpenSum, holders: Mapping[str, Arrays]) -> np.ndarray:
    numbers = {holder: 1 + opening.circle.number(holder) for holder in holders}
    weights = weights_of(list(numbers.values()))

    def seed(sender: str, secret: int, pieces: Mapping[str, np.ndarray]) -> bytes:
        found = joined({numbers[holder]: piece.tobytes() for holder, piece in pieces.items()}, weights)
        if found is None or mark(found) != opening.parcels[sender]["marks"][-1, secret].tobytes():
            why = f"the pieces that {sender} cut do not give its secret back; the sum cannot be opened"
            raise FalseSumError(why, opening.present, (sender,))
        return found

    total = opening.total.copy()
    for i, sender in enumerate(opening.present):
        total -= stream(seed(sender, 0, {h: a["own"][i] for h, a in holders.items()}), len(total))
        for j, other in enumerate(opening.lost):
            of_pair = seed(sender, 1 + opening.circle.number(other), {h: a["pairs"][i, j] for h, a in holders.items()})
            total -= pair_mask(sender, other, of_pair, len(total))
    return total


def _fail(opening: OpenSum, what: str, count: int, trouble: Mapping[str, str], never: Collection[str]) -> NoReturn:
    """Too few helped. If those who will `never` help leave fewer than are enough, waiting does not help."""
    reasons = "".join(f"; {name}: {why}" for name, why in sorted(trouble.items()))
    why = f"{count} clients {what}, {opening.circle.enough} are needed{reasons}"
    if len(opening.circle.names) - len(never) < opening.circle.enough:
        raise FalseSumError(f"{why}. This sum can never be opened", opening.present)
    raise TooFew(f"{why}. Nothing is lost: resume when they are back")


# --- on disk ------------------------------------------------------------------------------------------------


def kept(opening: OpenSum) -> bytes:
    """An open sum as a file's contents."""
    arrays: dict[str, Any] = {"format": OPEN_SUM.writes}
    arrays |= {"digest": opening.circle.digest, "present": list(opening.present), "total": opening.total}
    for i, name in enumerate(opening.present):
        arrays |= {f"{key}{i}": value for key, value in opening.parcels[name].items()}
    return to_bytes(arrays)


def found_again(now: JobState, data: bytes) -> OpenSum | None:
    """The open sum in a file, if it is of the present request. A damaged one counts as none, another version's not."""
    circle = Circle.of(now.job, now.request().digest())
    try:
        arrays = from_bytes(data)
        if circle is None or str(arrays["digest"]) != circle.digest:
            return None
        check_format(OPEN_SUM, {k: v.item() for k, v in arrays.items() if k == OPEN_SUM.key}, "open-sum.npz")
        present: Sequence[str] = [str(name) for name in arrays["present"]]
        parcels = {name: {key: arrays[f"{key}{i}"] for key in circle.shapes} for i, name in enumerate(present)}
        return OpenSum(circle, tuple(present), arrays["total"], parcels)
    except InputError:
        raise
    except (ValueError, KeyError, OSError, EOFError, BadZipFile):
        return None
