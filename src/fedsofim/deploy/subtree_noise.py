"""Tree noise with subtree estimates (Honaker), exactly, on the lattice of noise.py.

Let S be the integer sum of a tree node's rounds and Z = floor(2^32·z) its own draw. mechanisms.py estimates a complete
subtree of height h from all its nodes, a node of height k with weight 2^k/(2^(h+1) - 1). On each level the
sums add up to the root's S, and the levels' weights to 1, so the estimate is

    E = S + A/(2^(h+1) - 1),   A = Σ_nodes 2^k·Z, an integer,   and   floor(E) = S + floor(A/(2^(h+1) - 1)).

The running sum after m rounds is made of one complete subtree for each 1 of m's binary form; what is released is the
sum of their floor(E). That is a function of the values S + Z of completed nodes, each of which is the lattice's exact
Gaussian mechanism (noise.py), so it costs what releasing all of them costs, which mechanisms.py charges. At round m the
nodes of heights 0 to top that end there are drawn for the first time; the subtrees of m - 1 below `top` are merged:

    change(m) = floor(A_new/(2^(top+1) - 1)) - Σ_merged floor(A_h/(2^(h+1) - 1)),
    A_new = Σ_k 2^k·Z(k: m) + Σ_merged A_h.

Integers only, and no rounding but the floors above. The nodes of a merged subtree are drawn again, from the job's
secret: 2^(top+1) - 1 draws at round m.
"""

from collections.abc import Callable

import numpy as np

from fedsofim.errors import Refused

Node = Callable[[int, int], np.ndarray]  # the draw of the node of a height that ends with a round, from 1

MOST = 10**8  # numbers drawn for one release: some minutes


def change(node: Node, m: int) -> np.ndarray:
    """What the m-th round of a tree adds to the noise of the running sum, in whole lattice steps."""
    top = height_of(m)
    merged = [_weighted(node, h, (m - 1) >> h << h) for h in range(top)]
    new = sum((node(k, m) << k for k in range(1, top + 1)), node(0, m)) + sum(merged)
    return new // _paths(top) - sum(old // _paths(h) for h, old in enumerate(merged))


def _weighted(node: Node, height: int, last: int) -> np.ndarray:
    """A of the complete subtree of this height that ends with a round: Σ 2^k·Z over its nodes."""
    ends = [(k, last - (i << k)) for k in range(height + 1) for i in range(1 << (height - k))]
    (k, end), *rest = ends
    return sum((node(k, end) << k for k, end in rest), node(k, end) << k)


def _paths(height: int) -> int:
    return (2 << height) - 1


def height_of(m: int) -> int:
    """Of the largest subtree that a round completes."""
    return (m & -m).bit_length() - 1


def check_draws(m: int, coordinates: int) -> None:
    """Refused where a round would need more draws than anybody waits for; nothing has been charged yet."""
    if (draws := _paths(height_of(m))) * coordinates > MOST:
        raise Refused(
            f"round {m} of this tree needs {draws} draws of {coordinates} numbers for its subtree estimates, more than "
            f"{MOST}; use noise=tree, or restart it every so many rounds"
        )
