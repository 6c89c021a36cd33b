"""One server at a time works on a job's folder."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedsofim[flower]'")

from fake_grid import FakeGrid, numbered
from fedsofim.deploy.checkpoint import OUTCOME
from fedsofim.deploy.flower import server_app
from fedsofim.deploy.following import follow
from fedsofim.deploy.job_lock import JobBusyError, alone
from fedsofim.deploy.order import Conduct, Order, to_config
from fedsofim.deploy.policy import Policy
from fedsofim.errors import InputError
from nodes import charges
from strategies import strategy

HOLD = "import sys; from pathlib import Path; from fedsofim.deploy.job_lock import alone\n" \
       "with alone(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"  # fmt: skip


@pytest.fixture
def held(tmp_path: Path):
    """The folder of a job on which another process works."""
    folder = tmp_path / "job"
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdin=pipe, stdout=pipe)
    assert process.stdin is not None and process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    yield folder
    process.stdin.close()
    process.wait()
    process.stdout.close()


def test_a_second_server_is_refused_and_asks_nobody(held: Path, tmp_path: Path, nodes: list[Policy]):
    with pytest.raises(JobBusyError, match="another server works on this job"):
        strategy(tmp_path).start(FakeGrid(numbered(nodes)))
    assert [charges(policy) for policy in nodes] == [0, 0, 0]


def test_the_second_server_leaves_the_firsts_files_alone(held: Path, nodes: list[Policy]):
    config = to_config(Order(recipe="paper", method="fedgd"), Conduct(folder=str(held)))
    with pytest.raises(SystemExit, match="another server works on this job"):
        server_app.run(FakeGrid(numbered(nodes)), config)
    assert not (held / OUTCOME).exists()


def test_serve_says_so_before_anything_is_submitted(held: Path, tmp_path: Path):
    (held / OUTCOME).write_text(json.dumps({"finished": 3}))
    with pytest.raises(InputError, match="another server works on this job"):
        follow(tmp_path, Order(), Conduct(folder=str(held), patience=0.1))
    assert (held / OUTCOME).exists()


def test_the_lock_ends_with_its_holder(tmp_path: Path):
    for _ in range(2):
        with alone(tmp_path / "job"), pytest.raises(JobBusyError), alone(tmp_path / "job"):
            pass
