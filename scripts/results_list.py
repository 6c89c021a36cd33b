"""Every table, figure and number of README and docs that came from a run: what makes it, from what, in what time.

One line for each. A command's words may hold {runs} (where journals are kept), {features} and {tables} (folders of data
that are not part of the project) and {published} (the paper's tables). `minutes` are of two idle cores: recorded where
a page or journal says so (some beside other work), estimated from the number of runs elsewhere, None: nobody knows.
"""

from dataclasses import dataclass
from pathlib import Path

Command = tuple[str, ...]
PAPER, RECIPE = "experiments", "experiments/recipe"
# 900 runs of the paper's grids took eight minutes on two cores (docs/results/README.md); recipe runs have five seeds
MINUTES_A_RUN = 8 / 900


@dataclass(frozen=True)
class Result:
    name: str
    what: str  # in words
    commands: tuple[Command, ...]
    outputs: tuple[str, ...]  # in the repository, written by the commands or by hand from what they print
    inputs: tuple[str, ...] = ()
    minutes: float | None = None
    recorded: bool = False  # are the minutes on a page, or estimated?
    needs: tuple[str, ...] = ()  # of features, tables, published
    by_hand: str = ""  # what a person has to copy


def grid(name: str, file: str, runs: int, *, features: bool = True, published: bool = True) -> Result:
    """An experiment file: compare goes on where it was, report draws, collect copies what is worth keeping."""
    source = ("--source", "{features}") if features else ()
    beside = ("--published", "{published}") if published else ()
    return Result(
        name,
        f"tables and figures of {name}",
        (
            ("fedsofim", "compare", file, "--out", f"{{runs}}/{name}", *source),
            ("fedsofim", "report", f"{{runs}}/{name}", *beside),
            ("python", "experiments/collect.py", f"{{runs}}/{name}"),
        ),
        (f"docs/results/{name}",),
        (file,),
        minutes=round(runs * MINUTES_A_RUN, 1),
        needs=(*(("features",) if features else ()), *(("published",) if published else ())),
    )


def small(
    name: str, what: str, files: tuple[str, ...], minutes: float, first: Command | None = None, source: Command = ()
) -> Result:
    """A table of experiments/tables.py, shown by pages of docs."""
    paths = tuple(f"experiments/{file}.toml" for file in files)
    runs = tuple(("fedsofim", "compare", path, "--out", f"{{runs}}/{Path(path).stem}", *source) for path in paths)
    return Result(
        name,
        what,
        (*((first,) if first else ()), *runs, ("python", "experiments/tables.py", "{runs}", name)),
        (f"docs/results/{name}",),
        (*(first[2:3] if first else ()), *paths),
        minutes=minutes,
        recorded=not source,
        needs=("features",) if source else (),
    )


def curvature(name: str, minutes: float, *source: str) -> Result:
    """Steps from held-out records, then runs with them on the test records."""
    tune = ("fedsofim", "tune", f"experiments/tune-{name}.toml", "--strategy", "grid", "--out",
            f"experiments/tuned/{name}.toml", *source)  # fmt: skip
    return small(name, "curvatures inside the recipe's preparation", (name,), minutes, tune, source)


RESULTS: tuple[Result, ...] = (
    # small ones first, so that a stopped run has most of the list
    Result(
        "demo", "the picture in README and what the demo prints",
        (("fedsofim", "demo", "--out", "{runs}/demo"), ("cp", "{runs}/demo/curves.png", "docs/demo.png")),
        ("docs/demo.png",), ("experiments/demo.toml",), minutes=2,
    ),
    Result(
        "theory", "the picture of floors",
        (("fedsofim", "theory", "--L", "1", "--mu", "1", "--clip", "1", "--rho", "100", "--eta", "5", "--epsilon", "5",
          "--gap", "0.5", "--picture", "docs/theory.png"),),
        ("docs/theory.png",), minutes=1,
    ),
    Result(
        "plan", "the picture of what to expect",
        (("fedsofim", "plan", "--clients", "20", "--records", "2500", "--features", "64", "--classes", "10",
          "--epsilon", "1", "--picture", "docs/plan.png"),),
        ("docs/plan.png",), ("src/fedsofim/theory/cells.csv",), minutes=1,
    ),
    Result(
        "audit", "the attacker's table and picture",
        (("fedsofim", "audit", "--all", "--out", "docs/audit"),),
        ("docs/audit/audit.json", "docs/audit/audit.png"), minutes=3.4, recorded=True,
        by_hand="the table in docs/audit.md, from what it prints",
    ),
    Result(
        "sampled-prices", "prices of sampled releases between a second accountant's bounds",
        (("python", "scripts/sampled_prices.py"),), ("docs/explanation/accounting.md",), minutes=1, recorded=True,
        by_hand="its sentences, from the last lines",
    ),
    grid("recipe-fashion-local", f"{RECIPE}/fashion-local.toml", 80, features=False, published=False),
    Result(
        "models-fashion", "the MLP and the head on Fashion-MNIST in docs/models.md",
        (("fedsofim", "compare", "experiments/models-fashion-mlp.toml", "--out", "{runs}/models-fashion-mlp"),
         ("fedsofim", "compare", "experiments/models-fashion-linear.toml", "--out", "{runs}/models-fashion-linear")),
        ("docs/models.md",), ("experiments/models-fashion-mlp.toml", "experiments/models-fashion-linear.toml"),
        minutes=10, by_hand="the table, from runs.jsonl",
    ),
    small("units", "what protecting a record, a person or a client costs, in docs/protection.md", (
        "units/units-clients", "units/units-persons-2", "units/units-persons-5", "units/units-persons-10",
    ), 3),
    small("turns-local", "few clients in a round under local trust", ("turns/turns-local",), 3.5),
    small("turns-secure-sum", "few clients in a round under secure sum", ("turns/turns-secure-sum",), 5),
    small("turns-chance", "clients by chance", ("turns/turns-chance",), 1.9),
    small("turns-chance-clients", "clients by chance, each of them one unit", ("turns/turns-chance-clients",), 2.4),
    small("turns-gaps", "noise for known gaps", ("turns/turns-gaps-all", "turns/turns-gaps"), 1.4),
    small("turns-batches", "records that are drawn", ("turns/turns-batches",), 1.4),
    small("local-steps-fashion", "servers on pseudo-gradients of K local steps", ("local-steps-fashion",), 1.3),
    Result(
        "found-clips", "a clip that finds itself beside fixed ones, in docs/recipe.md",
        (("python", f"{RECIPE}/found_clips.py", "{runs}/found-clips.jsonl"),),
        ("docs/results/found-clips", "docs/recipe.md"), (f"{RECIPE}/found_clips.py",), minutes=3.5, recorded=True,
    ),
    Result(
        "unequal-budgets", "what a strict client costs the others, in docs/budgets.md",
        (("fedsofim", "compare", "experiments/unequal-budgets.toml", "--out", "{runs}/unequal-budgets"),
         ("fedsofim", "report", "{runs}/unequal-budgets")),
        ("docs/results/unequal-budgets", "docs/budgets.md"), ("experiments/unequal-budgets.toml",),
        by_hand="tables, figures and rows.csv, from the report's folder",
    ),
    Result(
        "private-tuning", "what private tuning buys, in docs/private-tuning.md",
        (("python", "experiments/private_tuning.py"),),
        ("docs/results/private-tuning", "docs/private-tuning.md"),
        tuple(f"experiments/private-tuning{of}.toml" for of in ("", "-fashion", "-fixed-step")),
        by_hand="the table, from table.md", minutes=4,
    ),
    curvature("curvature-fashion", 3.4),
    curvature("curvature-cifar10-local", 3, "--source", "{features}"),
    curvature("curvature-cifar10-secure-sum", 3, "--source", "{features}"),
    *(
        grid(f"paper-{data}-{what}", f"{PAPER}/paper-{data}-{what}.toml", runs)
        for data in ("cifar10", "pathmnist")
        for what, runs in (("noniid", 108), ("iid", 108), ("ablation", 48), ("rho", 42), ("true-cost", 36))
    ),
    grid("paper-runtime", f"{PAPER}/paper-runtime.toml", 216),
    grid("tuned-cifar10", f"{PAPER}/tuned-cifar10.toml", 132, published=False),
    grid("tuned-pathmnist", f"{PAPER}/tuned-pathmnist.toml", 84, published=False),
    *(
        grid(f"recipe-{data}-{trust}", f"{RECIPE}/{data}-{trust}.toml", 80, published=False)
        for data in ("cifar10", "pathmnist")
        for trust in ("local", "secure-sum")
    ),
    Result(
        "published-accuracy", "the table *published, rerun as published, and at true cost* in docs/methods.md",
        (("python", "benchmarks/published_accuracy.py", "{features}/..", "--out", "{runs}/published_accuracy.csv"),
         ("cp", "{runs}/published_accuracy.csv", "docs/results/published_accuracy.csv")),
        ("docs/results/published_accuracy.csv", "docs/methods.md"), minutes=round(312 * MINUTES_A_RUN, 1),
        needs=("features", "published"), by_hand="the table in docs/methods.md",
    ),
    Result(
        "recipe-ablation", "what each part of the recipe buys, and how near its steps are to the best",
        (("python", f"{RECIPE}/ablation.py", "--data", "{features}", "--data", "{tables}", "--out",
          "docs/results/recipe-ablation"),),
        ("docs/results/recipe-ablation",), needs=("features", "tables"),
    ),
    Result(
        "recipe-regret", "the recipe against the best of nine tuned methods, 44 cells",
        (("python", f"{RECIPE}/regret.py", "--data", "{features}", "--data", "{tables}", "--out", "{runs}/regret"),
         ("python", f"{RECIPE}/regret_table.py", "{runs}/regret", "--out", "docs/results/recipe-regret")),
        ("docs/results/recipe-regret",), (f"{RECIPE}/cells.toml",), needs=("features", "tables"),
    ),
    Result(
        "secure-sums", "seconds of masks in docs/coordinator.md", (("python", "benchmarks/secure_sums.py"),),
        ("docs/coordinator.md",), minutes=2, by_hand="its table",
    ),
    Result(
        "deployment-noise", "seconds of exact noise in docs/node.md", (("python", "benchmarks/deployment_noise.py"),),
        ("docs/node.md",), minutes=2, by_hand="its table",
    ),
    Result(
        "node-models", "seconds of models at a node in docs/node.md", (("python", "scripts/measure_node_models.py"),),
        ("docs/node.md",), minutes=2, by_hand="its table",
    ),
    Result(
        "rounds", "rounds of a federation in docs/performance.md", (("python", "benchmarks/rounds.py"),),
        ("docs/federation_rounds.json", "docs/performance.md"), minutes=10,
    ),
    Result(
        "crowd", "few of many clients, few of many records, in docs/performance.md",
        (("python", "benchmarks/crowd.py"), ("python", "benchmarks/run.py", "--page")),
        ("docs/crowd.json", "docs/performance.md"), minutes=1, recorded=True,
    ),
    Result(
        "performance", "times of rounds beside other libraries", (("python", "benchmarks/run.py"),),
        ("docs/performance.json", "docs/performance.md", "docs/performance.png"), minutes=30,
    ),
)  # fmt: skip

#: Long searches for faults have commands of their own: `make fuzz`, `make mutate`, `make soak`.
ELSEWHERE = ("docs/fuzzing.md", "docs/mutation.md", "docs/soak.md", "docs/soak.json")
