"""PyTorch: the plain gradient of a network over all records, not private, in the fastest of several block sizes.

Which size that is, is found on all of the records: on fewer of them it may be another one.
"""

import time

import torch  # pyright: ignore[reportMissingImports]
from networks_problem import read_network, row
from torch import nn  # pyright: ignore[reportMissingImports]
from torch_networks import Layers
from turns import serve

BLOCKS = (250, 1_000, 2_500, 5_000)  # and all at once


def main() -> None:
    problem = read_network()
    x = torch.cat([torch.from_numpy(a) for a in problem.x])
    y = torch.cat([torch.from_numpy(a) for a in problem.y]).long()
    ours = Layers({name: torch.from_numpy(value) for name, value in problem.params.items()})
    criterion = nn.CrossEntropyLoss(reduction="sum")

    def gradient(size: int) -> None:
        ours.net.zero_grad()
        for first in range(0, len(y), size):
            criterion(ours.net(x[first : first + size]), y[first : first + size]).backward()

    def second(size: int) -> float:
        gradient(size)
        began = time.perf_counter()
        gradient(size)
        return time.perf_counter() - began

    best = min((size for size in (*BLOCKS, len(y)) if size <= len(y)), key=second)
    gradient(best)
    total = row(ours.gradients(), torch.cat).numpy()[None].copy()
    said = "all at once" if best == len(y) else f"in blocks of {best:,}"
    serve(f"torch {torch.__version__}, {said}", total, lambda: gradient(best))


if __name__ == "__main__":
    main()
