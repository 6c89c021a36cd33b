"""Draws docs/node-page.png and docs/job-page.png: both pages of a small federation in this process, seen by Chromium.

Usage: python scripts/draw_pages.py [--out DIR] [--all]    (--all: also narrow and dark, to look at)
"""

import argparse
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from fedsofim.data import load
from fedsofim.data.partition import split
from fedsofim.deploy.checkpoint import PROGRESS
from fedsofim.deploy.clients import clients_of
from fedsofim.deploy.docket import Note, Verdict, noted
from fedsofim.deploy.handout import Terms, policy_text
from fedsofim.deploy.job_state import JobState
from fedsofim.deploy.node import answer, consider, hello
from fedsofim.deploy.order import Order
from fedsofim.deploy.pages.coordinators import job_view
from fedsofim.deploy.pages.loopback import Page, served
from fedsofim.deploy.pages.operators import Operators
from fedsofim.deploy.policy import Policy, read_policy
from fedsofim.deploy.round_notes import note_round, standing_of
from fedsofim.deploy.server import start_job, step
from fedsofim.errors import Refused

NAMES = ("st-anna", "city-clinic", "north-lab")
WHO = "run 8213940775013 of fl.example.org:9092"
SIZES = {"": "1200,1150", "-narrow": "500,1900", "-tall": "1200,1900"}


def make_node(folder: Path, name: str, x: np.ndarray, y: np.ndarray) -> Policy:
    folder.mkdir()
    np.savez(folder / "records.npz", x=x, y=y)
    (folder / "policy.toml").write_text(policy_text(name, Terms(methods=("fedsofim", "fedgd"))))
    policy = read_policy(folder / "policy.toml")
    policy.account.create()
    return policy


def refuse(policy: Policy, now: JobState) -> None:
    """Another run asks for a job that is beyond the cap."""
    try:
        note = Note(job=now.job.id)
        with noted(policy.ledger, "run 6600431 of fl.example.org:9092", "consider", Verdict.ALLOWED, note):
            consider(policy, now.job)
    except Refused:
        return
    raise SystemExit(f"{policy.name} allowed a job beyond its cap")


def train(policies: list[Policy], folder: Path, rounds: int) -> None:
    """A job among these nodes, as `serve` conducts it; its last rounds do without the last node."""
    data = load("digits")
    order = Order(method="fedsofim", recipe="paper", epsilon=1.0, rounds=rounds, clients=3, min_clients=2)
    now = start_job(order, clients_of([hello(p) for p in policies], 3))
    dear = start_job(Order(method="fedgd", recipe="paper", epsilon=3.0, rounds=50), now.clients)
    spent: dict[str, dict[str, float]] = {}
    for policy in policies:
        with noted(policy.ledger, WHO, "consider", Verdict.ALLOWED, Note(job=now.job.id)):
            consider(policy, now.job)
    folder.mkdir()
    for _ in range(rounds * 3 // 4):
        here = policies if now.round not in (7, 8, 12) else policies[:2]
        uploads = {}
        for policy in here:
            note = Note(job=now.job.id, phase=now.phase, round=now.round)
            with noted(policy.ledger, WHO, "ask", Verdict.CHARGED, note):
                uploads[policy.name] = answer(policy, now.request(), note.charged)
            spent[policy.name] = {"epsilon": note.spent or 0.0, "cap": policy.epsilon}
        now = step(now, uploads)
        right = 100 * float(np.mean(now.predict(data.x_test) == data.y_test))
        note_round(folder, now, {}, {"accuracy": right, "loss": loss(now, data.x_test, data.y_test)})
    for policy in policies:
        refuse(policy, dear)
    facts = {"round": now.round, "rounds": now.job.rounds, "job": "fedsofim, clip 10, weights uniform"}
    (folder / PROGRESS).write_text(json.dumps(facts | standing_of(now, spent)))


def loss(now: JobState, x: np.ndarray, y: np.ndarray) -> float:
    scores = np.column_stack([now.map(x), np.ones(len(x))]) @ np.asarray(now.params)
    scores -= scores.max(1, keepdims=True)
    return float(np.mean(np.log(np.exp(scores).sum(1)) - scores[np.arange(len(y)), y]))


def seen(address: str, path: Path, size: str, dark: bool) -> None:
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        raise SystemExit("chromium is needed to look at the pages")
    with tempfile.TemporaryDirectory() as profile:
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
                 "--hide-scrollbars", f"--user-data-dir={profile}", "--virtual-time-budget=3000",
                 f"--window-size={size}", f"--screenshot={path}"]  # fmt: skip
        flags += ["--blink-settings=preferredColorScheme=0", "--force-dark-mode"] if dark else []
        subprocess.run([browser, *flags, address], check=True, capture_output=True)
    shrink(path)


def shrink(path: Path) -> None:
    from PIL import Image

    Image.open(path).convert("RGB").quantize(256).save(path, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs"))
    parser.add_argument("--all", action="store_true")
    given = parser.parse_args()
    dealt = split(load("digits"), clients=3, iid=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["FEDSOFIM_STATE"] = str(folder / "state")
        data = dealt.dataset
        policies = [make_node(folder / n, n, data.x_train[part], data.y_train[part])
                    for n, part in zip(NAMES, dealt.parts, strict=True)]  # fmt: skip
        train(policies, folder / "first", 20)
        watched = Operators(policies[0].data.parent / "policy.toml", lambda: "connected to fl.example.org:9092")
        acts = {"stop": watched.stop, "resume": watched.resume}
        node = Page(kind="node", view=watched.view, acts=acts)
        job = Page(kind="job", view=lambda: job_view(folder / "first"))
        for what, page in (("node", node), ("job", job)):
            with served(page) as address:
                for size in SIZES if given.all else [""]:
                    for dark in (False, True) if given.all else (False,):
                        path = given.out / f"{what}-page{size}{'-dark' * dark}.png"
                        seen(address, path, SIZES[size], dark)
                        print(path)


if __name__ == "__main__":
    main()
