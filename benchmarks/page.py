"""docs/performance.md, from what was measured."""

import os
from collections.abc import Sequence

from crowd_section import section as crowd_section
from fresh import SEEDS, SETTINGS
from growth import EACH, ONE
from measure import EACH_XLA, ONE_OF_TEN, ONE_XLA
from ours import ROUNDS
from results import PeerLine, Results
from rivals import FLOWER_ENGINE, FLOWER_POLLED
from rounds_section import section
from server_step import ADAM
from targets import number, row, table

NAMES = {
    ONE: "one θ (DP-FedSOFIM)",
    EACH: "one θ per client (local steps)",
    ONE_OF_TEN: "one θ, one of ten rounds in a call, as in a run",
    ONE_XLA: "one θ, sums by XLA",
    EACH_XLA: "one θ per client, sums by XLA",
}

PAGE = """# Performance

`make bench` measured everything here and wrote this page, but for the two sections that name a program of their own.
Times are ratios between things that took turns in one run on one machine, as medians and as minima of all repeats; only
targets stated in seconds, and rounds of a federation, are given in seconds.

{machine}

**The reference problem**: 50,000 records of 64 features and a bias, 10 classes, 20 clients of 891 to 3,498 records (the
paper's Dirichlet(0.5) split), on synthetic numbers in the shape of frozen CIFAR-10 features. A round is the clipped
gradients of all clients, their noise and the server's step.

## Targets
{targets}

A target is met if the medians and the minima both meet it. {summary}

## A round and what it is made of
In units of the two matrix products that every round contains, X·θ and XᵀR at these shapes, by the faster of NumPy and
JAX:

{reference}

Softmax, clipping, noise and step cost so little because the products are not computed apart: the clipped sums are one
pass in C++ (`src/fedsofim/native`) that reads a tile of records once and does everything while it is in cache. XLA
calls it; it is compiled at first use. {native}The lines *sums by XLA* are what a machine without a C++ compiler gets. A
round called alone also waits for threads to wake; a run makes ten rounds a call.

The parts of the round with one θ, each compiled alone, in the same units:

{parts}

And the parts of the pass, each alone on a tile in cache, by one thread, over the time in which that thread makes
the multiplications of both products and nothing else, from registers. The whole would be 1 on a machine that did
everything else for nothing:

{kernel}

## Other libraries
How many times our round's time each needs for the same round. Before it was timed, each had to give the same clipped
sums for every client (clip 10), to within 1e-4 of the client's largest entry. Each is used in the fastest way we found.

{peers}

{peer_notes}

## Networks
Any JAX loss: the MLP has 19,210 parameters, the CNN (two strided convolutions, each with a maximum over 2 x 2, and two
layers) 26,010; 50,000 records at 20 clients. Our round, noise and step included, over a plain gradient of the same
network over the same records, which is not private. JAX and PyTorch each take the fastest of several block sizes and
of all records at once, found at this very size. Below 1 the private round is faster than that gradient.

{networks}

A record's gradient is not formed where a parameter met it in a product ([clipping](clipping.md)); convolutions and the
gradient of pooling are computed as products and slices, which XLA does not do for a plain gradient. Scratch memory
is a copy of the records and a piece of fixed size; it does not grow with records times parameters.

How many times our round's time others need, the same clipped sums for every client (clip 1) checked first:

{network_peers}

## Uneven clients
Time **per record** over that of the reference problem: 1 means that padding and bookkeeping cost nothing.

{padding}

A thousand clients with a θ each have thirteen numbers of model for every record: their noise, their updates and the
mean of them are what that line costs, not padding.

## The server's step
SOFIM over `optax.adam` on d parameters, both with donated buffers. *Kept* is what the optimizer stores between steps
and *scratch* what it holds during one, both in units of d numbers.

{steps}

## Growth
![Time of a round against the size of the problem](performance.png)

Exponents k of time ∝ size^k, fitted over all sizes, and over the last three, where no fixed cost hides the
growth. An end above 1 is a step, not a slope: between two of its sizes the problem outgrows the cache (32 MB here),
and every number costs more from there on. A server step of a million parameters fits it, one of ten million does not.

{curves}

## Whole runs
Each in a process of its own.

{fresh}
{federation}"""


def render(results: Results) -> str:
    """The page as text."""
    return PAGE.format(
        machine=table(["Machine", ""], [[k, v] for k, v in results.machine.items()]).replace("--:", "---"),
        targets=table(["Target", "bound", "median", "minimum", ""], [row(t) for t in results.targets]),
        summary=summary(results),
        reference=lines_table(results.reference),
        parts=lines_table(results.parts),
        native=f"**Not in this run: {results.native}.** " if results.native else "",
        kernel=kernel_table(results),
        peers=peers_table(results.peers),
        peer_notes=peer_notes(results),
        networks=lines_table(results.networks) if results.networks else "*Not in this run.*",
        network_peers=peers_table(results.network_peers),
        padding=lines_table(results.padding),
        steps=steps_table(results),
        curves=curves_table(results),
        fresh=fresh_table(results),
        federation=crowd_section() + section(),
    )


def summary(results: Results) -> str:
    """How many targets are met, and where to look for the rest."""
    missed = [t.what for t in results.targets if not t.met]
    if not missed:
        return "All are."
    return f"Not met or not measured: {'; '.join(missed)}. The profile below shows where the time goes."


def lines_table(lines) -> str:
    rows = [[NAMES.get(v.name, v.name), number(v.ratio.median, ""), number(v.ratio.minimum, "")] for v in lines]
    return table(["", "median", "minimum"], rows).replace("| --- |\n", "| --: |\n", 1)


def kernel_table(results: Results) -> str:
    rows = [[name, number(value, "")] for name, value in results.kernel.items()]
    return table(["", "over the multiplications"], rows) if rows else "*Not in this run.*"


def peers_table(peers: Sequence[PeerLine]) -> str:
    rows = [
        [p.name, number(p.ratio.median), number(p.ratio.minimum), p.version]
        if p.ratio
        else [p.name, "—", "—", p.reason]
        for p in peers
    ]
    return table(["Peer", "median", "minimum", "version"], rows) if rows else "*No peers in this run.*"


def peer_notes(results: Results) -> str:
    """What a ratio against Flower is made of."""
    found = {p.name: p.ratio for p in results.peers if p.ratio}
    if FLOWER_ENGINE not in found or FLOWER_POLLED not in found:
        return ""
    return (
        "Flower's engine looks for replies every 0.1 s, so a round cannot take less; the second line shows what is "
        "left when it looks every millisecond. It is built to run any client code anywhere, not to make this fast."
    )


def steps_table(results: Results) -> str:
    rows = [
        [f"{s.name}, d = {s.d:,}", number(s.over_adam.median), number(s.over_adam.minimum), f"{s.kept:.2f}",
         f"{s.scratch:.2f}"]
        for s in results.steps
        if s.name != ADAM
    ]  # fmt: skip
    return table(["", "median", "minimum", "kept", "scratch"], rows)


def curves_table(results: Results) -> str:
    rows = [
        [c.axis, NAMES.get(c.kind, c.kind), f"{c.sizes[0]:,} to {c.sizes[-1]:,}", f"{c.exponent:.2f}",
         f"{c.last_exponent:.2f}"]
        for c in results.curves
    ]  # fmt: skip
    return table(["Against", "", "sizes", "exponent", "at the end"], rows)


def fresh_table(results: Results) -> str:
    found = results.fresh
    if not found:
        return "*Not in this run.*"
    what = {
        "first run": "70 rounds, 20 clients, the first run on a machine: C++ and XLA compile",
        "run": "the same on any later day: XLA compiles",
        "sweep": "24 settings x 3 seeds, one program",
        "one-by-one": "the same one by one, in a program that takes settings as inputs and is compiled once",
        "calls": f"{found['calls']['runs']:.0f} of them as a user writes them, `train` in a loop",
        "grid": "the paper's grid, 108 runs",
        "million": "three rounds at one client of 1,000,000 records",
    }
    rows = [[text, f"{found[k]['seconds']:.1f} s", f"{found[k]['peak']:.2f} GB"] for k, text in what.items()]
    text = table(["", "seconds", "peak memory"], rows)
    return f"{text}\n\n{where_a_run_goes(found['run'])}\n\n{why_a_sweep_gains_no_more(results)}"


def why_a_sweep_gains_no_more(results: Results) -> str:
    """What the sweep is compared with, and the least that any sweep could cost."""
    found = results.fresh
    sweep, alone, calls = found["sweep"]["seconds"], found["one-by-one"]["seconds"], found["calls"]
    by_calls = sweep / (SETTINGS * SEEDS) / (calls["seconds"] / calls["runs"])
    text = (
        f"**The sweep** costs {sweep / alone:.2f} of the same runs one by one in their cheapest form, and "
        f"{by_calls:.2f} of as many calls of `train`, which compile anew for every setting."
    )
    if not results.multiplications or sweep <= alone / 2:
        return text
    floor = SETTINGS * SEEDS * ROUNDS * results.multiplications / (os.cpu_count() or 1)
    return (
        f"{text} Half of one by one is out of reach because one by one is no longer slow: the multiplications of all "
        f"runs, at the peak rate of all cores and with nothing else done, take {floor / alone:.2f} of it, and both "
        "must compile before they begin. The wide products that a sweep was to gain from are no faster than the narrow "
        "ones of the fused pass, which runs near that peak either way (its parts are in the table above); what a sweep "
        "still saves is transposing tiles, waiting for memory, and the calls for noise and steps of single runs."
    )


def where_a_run_goes(run: dict[str, float]) -> str:
    """A cold run's seconds, by what they were spent on."""
    before = run["tracing"] + run["lowering"] + run["compiling"]
    return (
        f"Of the second line's {run['seconds']:.2f} s, {run['compiling']:.2f} s went to XLA compiling "
        f"{run['programs']:.0f} programs, {run['tracing'] + run['lowering']:.2f} s to JAX tracing and lowering them, "
        f"{run['seconds'] - before:.2f} s to everything else, which includes all 70 rounds. Importing Python packages "
        f"({run['imports']:.2f} s) comes before and is not counted."
    )
