"""Lines of the pages that no test types as they stand, by their reason (test_commands_typed.py)."""

REASONS = {
    "sets up a machine or runs the tests, this one among them": ("make demo", "make test"),
    "installs; test_strangers.py does it, from a wheel": (
        'pip install "fedsofim[flower]"',
        "pip install 'fedsofim[torch]'",
        "pip install .",
    ),
    "minutes to hours; a test of its own has the short form": (
        "make soak",
        "make mutate",
        "python scripts/fuzz.py --programs 20000 --seed 0 --jobs 2 --out runs/fuzz --page",
        "python scripts/fuzz_wire.py --messages 100000 --seed 0",
        "FEDSOFIM_FUZZ=20000 python -m pytest tests/deploy/test_parsers_fuzzed.py "
        "tests/deploy/flower/test_messages_fuzzed.py",
        "python scripts/mutate.py --own-only --file deploy/",
        'python scripts/mutate.py --only "masks repeat"',
        "python scripts/mutate.py --tests-added",
        "fedsofim audit --all --out audit",
    ),
    "test_planted_bugs.py asks the same": ("python scripts/mutate.py --check",),
    "fetches weights and images; tests/data/test_extraction.py has the same from files": (
        "fedsofim features cifar10 --backbone resnet20",
        "fedsofim features photos/ --backbone resnet20 --out photos.npz",
    ),
    "needs a node's folder; test_tutorials.py types the same in one": (
        "fedsofim node check --policy policy.toml",
        "fedsofim ledger show --policy policy.toml",
    ),
    "needs nodes that are up; test_pages_walked.py and test_tutorials.py serve jobs that the pages print": (
        "fedsofim serve fed/server --job jobs/first --epsilon 1",
        "fedsofim serve fed/server --budgets from-nodes --epsilon 5 --clients 3",
        "fedsofim serve fed/server --job jobs/first --unit person --records-per-person 10 --epsilon 1 --clients 3",
        "fedsofim serve fed/server --job jobs/first --epsilon 1 --clients 3 --min-clients 2",
        "fedsofim serve fed/server --job jobs/sum --epsilon 1 --clients 3 --trust secure-sum",
        "fedsofim serve fed/server --job jobs/second --epsilon 1 --clients 3 --trust secure-sum",
        "fedsofim serve fed/server --job jobs/third --recipe paper --method fedgd --rounds 70 --clients 3 "
        "--min-clients 2",
        "fedsofim serve fed/server --job jobs/fourth --epsilon 1 --clients 5 --trust secure-sum --min-clients 4",
        "fedsofim serve fed/server --job jobs/fifth --epsilon 1 --clients 3 --evaluate private",
    ),
}
NOT_TYPED = {line for lines in REASONS.values() for line in lines}
