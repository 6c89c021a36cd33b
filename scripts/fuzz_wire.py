"""The long run over garbled messages: heads, announcements, facts and arrays, as a node and as a server take them in.

    python scripts/fuzz_wire.py --messages 100000 --seed 0

Half of the messages go to a node, half to a server that hears an honest node beside. Exit 1 if anything but a value or
a refusal comes of one, or if the honest node is not heard; that message's number is printed, and `--only NUMBER`
takes in that one alone. docs/fuzzing.md says what is garbled.
"""

import argparse
import contextlib
import json
import os
import random
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "support")]


@contextlib.contextmanager
def connected(link: Any) -> Iterator[None]:
    """Lets a server reach a SuperLink in memory."""
    from fedsofim.deploy.flower import arrivals

    before = arrivals.runtime_client_of
    arrivals.runtime_client_of = lambda grid: link
    try:
        yield
    finally:
        arrivals.runtime_client_of = before


def taken_in(number: int, seed: int, right: list[Any], honest: Any) -> str:
    """What becomes of one message; the side that took it in comes first."""
    import garbled

    dice = random.Random(f"{seed}/{number}")
    if number % 2:
        return f"server: {garbled.server_bears(garbled.garbled(right[dice.choice((1, 3))], dice), honest, connected)}"
    return f"node: {garbled.node_bears(garbled.garbled(dice.choice(right), dice))}"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--messages", type=int, default=100_000)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--only", type=int)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FEDSOFIM_STATE"] = folder
        import garbled
        from fedsofim.progress import progress_bar
        from nodes import asked, make_nodes

        right, honest = garbled.right_messages(asked(make_nodes(Path(folder)))), garbled.honest_reply()
        numbers = range(given.messages) if given.only is None else [given.only]
        fates = Counter[str]()
        with progress_bar("messages", total=len(numbers)) as progress:
            for done, number in enumerate(numbers, 1):
                try:
                    fates[taken_in(number, given.seed, right, honest)] += 1
                except BaseException:
                    traceback.print_exc()
                    print(f"message {number} of seed {given.seed}", file=sys.stderr)
                    return 1
                if done % 500 == 0 or done == len(numbers):
                    progress.at(done)
    print(json.dumps(dict(sorted(fates.items())), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
