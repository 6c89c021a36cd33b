"""What a round costs, counted: multiplications, numbers sent, numbers kept.

A client forms |D_i| gradients of d numbers each, so its work is 2·|D_i|·d multiplications (X·θ and Xᵀ(p - e_y))
and what clipping adds, |D_i|·(p + K): the paper's O(d) per client, O(n·d) for all, leaves out the records. The
server adds n vectors, O(n·d), and its own step is two inner products and three scaled vectors: O(d), as claimed.
"""

from collections.abc import Sequence
from typing import Any


def client_multiplications(records: int, d: int) -> int:
    """Of one client's two products in a round.

    >>> client_multiplications(records=2500, d=650)
    3250000
    """
    return 2 * records * d


def server_multiplications(n: int, d: int) -> int:
    """Weighing n uploads, β·M + (1-β)·G, |M|² and M·G, a·G + b·M, and η times that."""
    return n * d + 2 * d + 2 * d + 2 * d + d


def sofim_multiplications(d: int) -> int:
    """What of it DP-FedGD does not have."""
    return 6 * d


def per_round(sizes: Sequence[int], d: int) -> dict[str, Any]:
    """A round's counts as plain data."""
    n = len(sizes)
    return {
        "largest_client_multiplications": client_multiplications(max(sizes), d),
        "all_clients_multiplications": client_multiplications(sum(sizes), d),
        "paper_says_all_clients": n * d,
        "server_multiplications": server_multiplications(n, d),
        "sofim_multiplications": sofim_multiplications(d),
        "server_buffer_numbers": d,
        "numbers_up": n * d,
        "numbers_down": n * d,
    }
