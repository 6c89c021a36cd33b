"""Every table, figure and number of README and docs that came from a run: what makes it, and from what.

One line for each. A command's words may hold {runs} (where journals are kept), {own} (a folder there of this result as
made by the present code, for programs that go on whatever the code was), {features} and {tables} (folders of data that
are not part of the project) and {published} (the paper's tables). Tables on pages are written by the commands,
between marks (experiments/pages.py). In what time is in docs/results/minutes.json, which make_results.py writes.
"""

from dataclasses import dataclass, replace
from pathlib import Path

Command = tuple[str, ...]
PAPER, RECIPE = "experiments", "experiments/recipe"


@dataclass(frozen=True)
class Result:
    name: str
    what: str  # in words
    commands: tuple[Command, ...]
    outputs: tuple[str, ...]  # in the repository
    inputs: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()  # of features, tables, published


def grid(name: str, file: str, *, features: bool = True, published: bool = True) -> Result:
    """An experiment file: compare goes on where it was, report draws, collect copies what is worth keeping."""
    source = ("--source", "{features}") if features else ()
    beside = ("--published", "{published}") if published else ()
    return Result(
        name,
        f"tables and figures of {name}",
        (
            ("fedsofim", "compare", file, "--again", "--out", f"{{runs}}/{name}", *source),
            ("fedsofim", "report", f"{{runs}}/{name}", *beside),
            ("python", "experiments/collect.py", f"{{runs}}/{name}"),
        ),
        (f"docs/results/{name}",),
        (file,),
        needs=(*(("features",) if features else ()), *(("published",) if published else ())),
    )


def tuned(data: str) -> Result:
    """A grid of settings that were tuned alike, and its table in docs/results/README.md."""
    name = f"tuned-{data}"
    made = grid(name, f"{PAPER}/{name}.toml", published=False)
    shown = ("python", "experiments/tuned_tables.py", name)
    outputs = (*made.outputs, "docs/results/README.md")
    return replace(
        made, commands=(*made.commands, shown), outputs=outputs, inputs=(*made.inputs, f"{PAPER}/tuned/{data}.toml")
    )


def small(name: str, what: str, files: tuple[str, ...], first: Command | None = None, source: Command = ()) -> Result:
    """A table of experiments/tables.py, shown by pages of docs."""
    paths = tuple(f"experiments/{file}.toml" for file in files)
    runs = tuple(
        ("fedsofim", "compare", path, "--again", "--out", f"{{runs}}/{Path(path).stem}", *source) for path in paths
    )
    return Result(
        name,
        what,
        (*((first,) if first else ()), *runs, ("python", "experiments/tables.py", "{runs}", name)),
        (f"docs/results/{name}",),
        (*(first[2:3] if first else ()), *paths),
        needs=("features",) if source else (),
    )


def curvature(name: str, *source: str) -> Result:
    """Steps from held-out records, then runs with them on the test records."""
    tune = ("fedsofim", "tune", f"experiments/tune-{name}.toml", "--strategy", "grid", "--out",
            f"experiments/tuned/{name}.toml", *source)  # fmt: skip
    return small(name, "curvatures inside the recipe's preparation", (name,), tune, source)


RESULTS: tuple[Result, ...] = (
    # small ones first, so that a stopped run has most of the list
    Result(
        "demo", "the picture in README and what the demo prints",
        (("fedsofim", "demo", "--out", "{runs}/demo"), ("cp", "{runs}/demo/curves.png", "docs/demo.png")),
        ("docs/demo.png",),
    ),
    Result(
        "theory", "the picture of floors",
        (("fedsofim", "theory", "--L", "1", "--mu", "1", "--clip", "1", "--rho", "100", "--eta", "5", "--epsilon", "5",
          "--gap", "0.5", "--picture", "docs/theory.png"),),
        ("docs/theory.png",),
    ),
    Result(
        "plan", "the picture of what to expect",
        (("fedsofim", "plan", "--clients", "20", "--records", "2500", "--features", "64", "--classes", "10",
          "--epsilon", "1", "--picture", "docs/plan.png"),),
        ("docs/plan.png",), ("src/fedsofim/theory/cells.csv",),
    ),
    Result(
        "audit", "the attacker's table and picture",
        (("fedsofim", "audit", "--all", "--out", "docs/results/audit"), ("python", "experiments/audit_tables.py")),
        ("docs/results/audit",), ("src/fedsofim/attack/everything.py",),
    ),
    Result(
        "sampled-prices", "prices of sampled releases between a second accountant's bounds",
        (("python", "scripts/sampled_prices.py"),), ("docs/results/sampled-prices",), ("tests/support/loss_curves.py",),
    ),
    Result(
        "shipped-features", "what the shipped features are worth, in docs/data.md",
        (("python", "scripts/shipped_features.py"),), ("docs/results/shipped-features", "docs/data.md"),
        ("scripts/linear_probe.py",),
    ),
    grid("recipe-fashion-local", f"{RECIPE}/fashion-local.toml", features=False, published=False),
    small("models-digits", "models on digits, in docs/models.md", (
        "models/models-digits-linear", "models/models-digits-mlp", "models/models-digits-cnn",
        "models/models-digits-flax",
    )),
    small("models-fashion", "the MLP and the head on Fashion-MNIST, in docs/models.md", (
        "models/models-fashion-linear", "models/models-fashion-mlp",
    )),
    Result(
        "network-steps", "how near the recipe's step is to the best one for an MLP, in docs/models.md",
        (("python", f"{RECIPE}/network_steps.py", "{own}/network-steps.jsonl"),),
        ("docs/results/network-steps", "docs/models.md"), (f"{RECIPE}/ablation.py",),
    ),
    Result(
        "tasks", "how well each task is learned, in docs/tasks.md",
        (("python", "experiments/tasks.py", "{own}/tasks.jsonl"),),
        ("docs/results/tasks", "docs/tasks.md"), ("tests/support/answers.py",),
    ),
    small("units", "what protecting a record, a person or a client costs, in docs/protection.md", (
        "units/units-clients", "units/units-persons-2", "units/units-persons-5", "units/units-persons-10",
    )),
    small("turns-local", "few clients in a round under local trust", ("turns/turns-local",)),
    small("turns-secure-sum", "few clients in a round under secure sum", ("turns/turns-secure-sum",)),
    small("turns-chance", "clients by chance", ("turns/turns-chance",)),
    small("turns-chance-clients", "clients by chance, each of them one unit", ("turns/turns-chance-clients",)),
    small("turns-gaps", "noise for known gaps", ("turns/turns-gaps-all", "turns/turns-gaps")),
    small("turns-batches", "records that are drawn", ("turns/turns-batches",)),
    small("local-steps-fashion", "servers on pseudo-gradients of K local steps", ("local-steps-fashion",)),
    Result(
        "found-clips", "a clip that finds itself beside fixed ones, in docs/recipe.md",
        (("python", f"{RECIPE}/found_clips.py", "{own}/found-clips.jsonl"),),
        ("docs/results/found-clips", "docs/recipe.md"), (f"{RECIPE}/found_clips.py",),
    ),
    Result(
        "unequal-budgets", "what a strict client costs the others, in docs/budgets.md",
        (("fedsofim", "compare", "experiments/unequal-budgets.toml", "--again", "--out", "{runs}/unequal-budgets"),
         ("fedsofim", "report", "{runs}/unequal-budgets"),
         ("python", "experiments/collect.py", "{runs}/unequal-budgets"),
         ("python", "experiments/unequal_budgets.py")),
        ("docs/results/unequal-budgets", "docs/budgets.md"), ("experiments/unequal-budgets.toml",),
    ),
    Result(
        "private-tuning", "what private tuning buys, in docs/private-tuning.md",
        (("python", "experiments/private_tuning.py", "{own}/private-tuning.jsonl"),),
        ("docs/results/private-tuning", "docs/private-tuning.md"),
        tuple(f"experiments/private-tuning{of}.toml" for of in ("", "-fashion", "-fixed-step")),
    ),
    curvature("curvature-fashion"),
    curvature("curvature-cifar10-local", "--source", "{features}"),
    curvature("curvature-cifar10-secure-sum", "--source", "{features}"),
    *(
        grid(f"paper-{data}-{what}", f"{PAPER}/paper-{data}-{what}.toml")
        for data in ("cifar10", "pathmnist")
        for what in ("noniid", "iid", "ablation", "rho", "true-cost")
    ),
    Result(
        "reproduced", "how many of the published numbers reproduce, of the grids above as they are kept",
        (("python", "experiments/reproduced.py"),), ("docs/results/reproduced", "docs/results/README.md"),
    ),
    Result(
        "last-bits", "which of the grids' runs a millionth of the clip moves by points",
        (("python", "experiments/last_bits.py", "{own}", "--source", "{features}"),),
        ("docs/results/last-bits", "docs/results/README.md"),
        (*(f"{PAPER}/paper-cifar10-{what}.toml" for what in ("noniid", "ablation", "rho")),
         f"{PAPER}/tuned-pathmnist.toml", f"{PAPER}/tuned/pathmnist.toml"),
        needs=("features",),
    ),
    grid("paper-runtime", f"{PAPER}/paper-runtime.toml"),
    tuned("cifar10"),
    tuned("pathmnist"),
    *(
        grid(f"recipe-{data}-{trust}", f"{RECIPE}/{data}-{trust}.toml", published=False)
        for data in ("cifar10", "pathmnist")
        for trust in ("local", "secure-sum")
    ),
    Result(
        "published-accuracy", "the table *published, rerun as published, and at true cost* in docs/methods.md",
        (("python", "benchmarks/published_accuracy.py", "--features", "{features}", "--published", "{published}",
          "--out", "{own}/rows.csv"),),
        ("docs/results/published-accuracy", "docs/methods.md"), needs=("features", "published"),
    ),
    Result(
        "published-agreement", "how far reruns are from what was published, in docs/methods.md",
        (("python", "experiments/published_agreement.py"),),
        ("docs/results/published-accuracy/agreement.md", "docs/methods.md"),
        ("docs/results/published-accuracy/rows.csv",),
    ),
    Result(
        "theory-numbers", "what the analysis says at the published setting, in docs/theory.md",
        (("python", "experiments/theory_numbers.py", "--features", "{features}"),),
        ("docs/results/theory", "docs/theory.md"), needs=("features",),
    ),
    Result(
        "recipe-ablation", "what each part of the recipe buys, and how near its steps are to the best",
        (("python", f"{RECIPE}/ablation.py", "--data", "{features}", "--data", "{tables}", "--runs", "{own}", "--out",
          "docs/results/recipe-ablation"),),
        ("docs/results/recipe-ablation",), needs=("features", "tables"),
    ),
    Result(
        "recipe-ablation-parts", "the same by part and cell, for pages to quote",
        (("python", f"{RECIPE}/ablation_parts.py"),), ("docs/results/recipe-ablation/parts.csv",),
        ("docs/results/recipe-ablation/accuracies.json",),
    ),
    Result(
        "recipe-regret", "the recipe against the best of nine tuned methods, 44 cells",
        (("python", f"{RECIPE}/regret.py", "--data", "{features}", "--data", "{tables}", "--out", "{own}"),
         ("python", f"{RECIPE}/regret_table.py", "{own}", "--out", "docs/results/recipe-regret")),
        ("docs/results/recipe-regret",), (f"{RECIPE}/cells.toml",), needs=("features", "tables"),
    ),
    Result(
        "secure-sums", "seconds of masks in docs/coordinator.md", (("python", "benchmarks/secure_sums.py"),),
        ("docs/results/secure-sums", "docs/coordinator.md"),
    ),
    Result(
        "deployment-noise", "seconds of exact noise in docs/node.md", (("python", "benchmarks/deployment_noise.py"),),
        ("docs/results/deployment-noise", "docs/node.md"),
    ),
    Result(
        "node-models", "seconds of models at a node in docs/node.md", (("python", "scripts/measure_node_models.py"),),
        ("docs/results/node-models", "docs/node.md"),
    ),
    Result(
        "rounds", "rounds of a federation in docs/performance.md", (("python", "benchmarks/rounds.py"),),
        ("docs/federation_rounds.json", "docs/performance.md"),
    ),
    Result(
        "crowd", "few of many clients, few of many records, in docs/performance.md",
        (("python", "benchmarks/crowd.py"), ("python", "benchmarks/run.py", "--page")),
        ("docs/crowd.json", "docs/performance.md"),
    ),
    Result(
        "performance", "times of rounds beside other libraries", (("python", "benchmarks/run.py"),),
        ("docs/performance.json", "docs/performance.md", "docs/performance.png"),
    ),
)  # fmt: skip

#: Long searches for faults have commands of their own: `make fuzz`, `make mutate`, `make soak`.
ELSEWHERE = ("docs/fuzzing.md", "docs/results/fuzz", "docs/mutation.md", "docs/soak.md", "docs/soak.json")
