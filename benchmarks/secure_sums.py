"""Cost of a secure sum that can do without some clients: what it adds to a round, in seconds and in bytes.

python benchmarks/secure_sums.py     # docs/results/secure-sums, and the table of docs/coordinator.md
"""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedsofim.deploy.parcels import Circle, opened_parcel, packed, with_myself
from fedsofim.deploy.secure_sum import added, masks, seed_of, stream
from fedsofim.deploy.unmasking import OpenSum, Said, unmasked

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "experiments"))

import pages  # pyright: ignore[reportMissingImports]

CASES = ((5, 4, 650), (5, 4, 1_000_000), (20, 14, 650), (20, 14, 1_000_000), (50, 35, 650))  # clients, enough, numbers
HEAD = ("clients n", "enough t", "numbers", "lost", "a node's masks", "its parcels", "its pieces",
        "the server's unmasking", "upload", "reveal, to and from a node")  # fmt: skip


def fastest(run: Callable[[], Any], repeats: int = 3) -> tuple[float, Any]:
    """Seconds of computing time of the fastest run, and what it gave."""
    times, out = [], None
    for _ in range(repeats):
        began = time.process_time()
        out = run()
        times.append(time.process_time() - began)
    return min(times), out


def secrets_of(names: Sequence[str]) -> dict[str, dict[str, bytes]]:
    """Of each pair, by both; X25519 is done once for a request and costs 0.1 ms a pair."""
    pairs = {frozenset((a, b)): os.urandom(32) for a in names for b in names if a < b}
    return {a: {b: pairs[frozenset((a, b))] for b in names if b != a} for a in names}


def measure(clients: int, enough: int, numbers: int) -> Iterator[dict[str, Any]]:
    """A row with nobody lost, and one with as many as can be."""
    circle = Circle(tuple(f"n{i:03d}" for i in range(clients)), enough, "d" * 64)
    secrets, own = secrets_of(circle.names), {name: os.urandom(32) for name in circle.names}

    def upload(name: str) -> np.ndarray:
        mask = masks(name, secrets[name], circle.digest, numbers)
        return mask + stream(seed_of(own[name], "own", circle.digest), numbers)

    masking, _ = fastest(lambda: upload(circle.names[0]))
    packing, _ = fastest(lambda: packed(circle, circle.names[0], secrets[circle.names[0]], own[circle.names[0]]))
    parcels = {name: packed(circle, name, secrets[name], own[name]) for name in circle.names}
    words = {name: upload(name) for name in circle.names}

    def pieces(name: str, present: Sequence[str], lost: Sequence[str]) -> dict[str, np.ndarray]:
        """What a node reveals, without its ledger."""
        to, k = with_myself(name, secrets[name], own[name]), circle.number(name)

        def opened(part: str, sender: str) -> list[bytes]:
            return opened_parcel(circle, part, sender, name, to[sender], parcels[sender][f"sealed_{part}"][k])

        out = {"own": [opened("own", sender)[0] for sender in present]}
        if lost:
            places = [circle.number(other) for other in lost]
            out["pairs"] = [row[p] for sender in present for row in [opened("pairs", sender)] for p in places]
        shapes = {"own": (len(present), 32), "pairs": (len(present), len(lost), 32)}
        return {key: np.frombuffer(b"".join(rows), np.uint8).reshape(shapes[key]) for key, rows in out.items()}

    for lost in ((), circle.names[enough:]):
        present = circle.names[: clients - len(lost)]
        opening = OpenSum(circle, present, added([words[n] for n in present]), parcels)
        revealing, _ = fastest(lambda p=present, q=lost: pieces(circle.names[0], p, q))
        answers = {name: Said({}, pieces(name, present, lost)) for name in present}
        votes = {n: Said({"present": list(present)}, {"votes": np.zeros((clients, 32), np.uint8)}) for n in present}
        both = {"agree": votes, "reveal": answers}
        opened, total = fastest(lambda o=opening, b=both: unmasked(o, lambda what, *rest: b[what]))
        assert not total.any(), "masks were left"
        down = sum(
            parcels[n]["sealed_own"].nbytes + (parcels[n]["sealed_pairs"].nbytes if lost else 0) for n in present
        )
        up = sum(a.nbytes for a in answers[present[0]].arrays.values())
        more = sum(a.nbytes for a in parcels[present[0]].values())
        yield {
            "clients": clients, "enough": enough, "numbers": numbers, "lost": len(lost),
            "masks ms": round(1e3 * masking, 2), "parcels ms": round(1e3 * packing, 2),
            "pieces ms": round(1e3 * revealing, 2), "server ms": round(1e3 * opened, 2),
            "upload kB": round(more / 1e3, 2), "reveal kB": round((down / clients + up) / 1e3, 2),
        }  # fmt: skip


def markdown(rows: list[dict[str, Any]]) -> str:
    return pages.markdown(HEAD, map(line, rows), left=0)


def line(row: dict[str, Any]) -> list[str]:
    sizes = [f"{int(row[name]):,}" for name in ("clients", "enough", "numbers", "lost")]
    times = [f"{float(row[name]):.2g} ms" for name in ("masks ms", "parcels ms", "pieces ms", "server ms")]
    return [*sizes, *map(plain, times), f"+ {float(row['upload kB']):.3g} kB", f"{float(row['reveal kB']):.3g} kB"]


def plain(time: str) -> str:
    """No powers of ten: these are hundreds of milliseconds at most.

    >>> plain("1.7e+02 ms"), plain("5.1 ms")
    ('170 ms', '5.1 ms')
    """
    return f"{float(time.split()[0]):g} ms"


def main() -> None:
    rows = [row for case in CASES for row in measure(*case)]
    print(markdown(rows))
    pages.keep("secure-sums", markdown(rows), rows)


if __name__ == "__main__":
    main()
