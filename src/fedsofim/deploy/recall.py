"""The coordinator's memory as a second witness of every node's ledger.

A node's own witness (witness.py) lies on its own machine: whoever takes the whole machine back to an older day takes
ledger and witness back together. But at the end of a job the node signed how long its chain was and how it ended
(certificate.py), and the coordinator has that. It gives it back when the node next introduces itself, before anything
is asked. A node that finds its own signature under a link that its ledger does not have knows that its ledger is older
than what it signed, or went on from an older copy: it tells its witness, so that this and every later question is
refused, whoever asks, until the newest copy is back (ledger_file.py).

What a coordinator cannot do with it: make a statement up (it has no node's key), or stop a node whose ledger is whole,
since that has every link that it ever signed. Left out, it is as before: one witness.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedsofim.deploy.certificate import sound
from fedsofim.deploy.chain import Link
from fedsofim.deploy.policy import Policy
from fedsofim.deploy.sane import check_plain, is_name
from fedsofim.deploy.signatures import is_signed, public_half, trouble_with
from fedsofim.deploy.witness import believe, place_of
from fedsofim.errors import InputError, is_whole
from fedsofim.files import write_text

# --- at the coordinator -------------------------------------------------------------------------------------


def keep(folder: Path, statements: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Keep each node's last signed statement; in words, who now states less than it signed before."""
    said = []
    for name, stated in statements.items():
        if not is_signed(stated) or not is_whole(stated.get("entries")) or not is_name(name):
            continue
        before = kept(folder, name)
        if before and before["ledger"] == stated["ledger"] and before["entries"] > stated["entries"]:
            said.append(f"{name} states {stated['entries']} entries of its ledger; it has signed {before['entries']}")
            continue
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / f"{name}.json", json.dumps(dict(stated)))
    return said


def kept(folder: Path, name: str) -> dict[str, Any] | None:
    """The last statement that a node signed, if it is known here."""
    try:
        found = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{folder / name}.json: the statement kept of {name} cannot be read ({error})") from error
    if not isinstance(found, dict) or not sound(found) or not is_whole(found.get("entries")):
        raise InputError(f"{folder / name}.json: the statement kept of {name} is damaged; put it aside")
    return found


# --- at the node --------------------------------------------------------------------------------------------


def recalled(policy: Policy, statement: Any, key: Path | None) -> dict[str, Any]:
    """What became of a statement that this node is said to have signed; an error if its ledger is older than that."""
    check_plain(statement)
    if not isinstance(statement, Mapping) or not sound(statement):
        raise InputError("a statement was given back that is none; expected one that this node signed")
    if key is None:
        return {"recalled": "not checked: this node has no key"}
    if why := trouble_with(statement, public_half(key)):
        return {"recalled": f"not believed: {why}"}  # a new key, or somebody else's words
    account = policy.account
    standing = account.standing()
    if statement["ledger"] != standing.ledger:
        return {"recalled": "it is about another ledger than the present one"}
    link = Link(int(statement["entries"]), bytes.fromhex(str(statement["head"])))
    if account.link(link.number) == link:
        return {"recalled": "the ledger has it"}
    believe(policy.witness or place_of(standing.ledger), link)
    account.standing()  # which now refuses, in the words of a rollback
    raise InputError("the ledger is not the one that this node signed for; nothing is released")
