"""Start and stop processes: SuperLink, nodes, runs. Whatever was started is stopped, children included."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NoReturn

from fedsofim.deploy.address import Address
from fedsofim.errors import InputError

APP = Path(__file__).parent / "flower" / "app"
#: No telemetry, no update check, no installation of what an app asks for; prompt workers, compiled code kept.
FLOWER = {
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "2.0",
}


FLOWERS = ((1, 41), (1, 43))  # versions of Flower that fedsofim works with: from, and below


def check_flower() -> None:
    """An error in words if Flower is of a version whose inner pieces fedsofim was not tried with."""
    try:
        found = version("flwr")
    except PackageNotFoundError:
        raise InputError("Flower is not installed here; install it with: pip install 'fedsofim[flower]'") from None
    numbers = tuple(int(part) for part in found.split(".")[:2] if part.isdigit())
    if not FLOWERS[0] <= numbers < FLOWERS[1]:
        raise InputError(f"Flower {found} is installed here; fedsofim works with 1.41 and 1.42: "
                         "pip install 'fedsofim[flower]'")  # fmt: skip


def command(name: str) -> str:
    """One of Flower's commands, of this installation."""
    check_flower()
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        raise InputError("Flower is not installed here; install it with: pip install 'fedsofim[flower]'")
    return found


def free_port() -> int:
    """A port that nobody uses here, nor the one after it, on which a SuperLink behind it would listen."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            with contextlib.suppress(OSError, OverflowError):
                second.bind(("127.0.0.1", port + 1))
                return port


# --- a node -------------------------------------------------------------------------------------------------


def run_node(
    policy: Path, superlink: str, certificates: Path | None, key: Path | None, work: Path, page: int | None = None
) -> NoReturn:
    """A node, in the place of this process, until it is told to stop; with its page at a port, 0 for a free one."""
    check_flower()
    work.mkdir(parents=True, exist_ok=True)
    shown = [] if page is None else ["--page", str(page)]
    arguments = [*node_command(policy, superlink, certificates, key, work), *shown]
    os.execve(arguments[0], arguments, {**os.environ, **FLOWER, **_own(work.absolute())})


def _own(work: Path) -> dict[str, str]:
    return {"FLWR_HOME": str(work / "flwr"), "JAX_COMPILATION_CACHE_DIR": str(work / "compiled")}


def node_command(policy: Path, superlink: str, certificates: Path | None, key: Path | None, work: Path) -> list[str]:
    """The loop of a node (flower/node_loop.py): TLS and the node's key, unless neither is given."""
    files = {"--policy": policy, "--work": work}
    files |= {} if certificates is None or key is None else {"--root-certificates": certificates, "--key": key}
    options = [part for option, path in files.items() for part in (option, str(path.absolute()))]
    return [sys.executable, "-m", "fedsofim.deploy.flower.node_loop", "--superlink", superlink, *options]


def node_start(folder: Path, where: Address) -> list[str]:
    """What a node's start.sh runs, with TLS and the node's key."""
    files = {"--policy": "policy.toml", "--root-certificates": "ca.crt", "--key": "node.key", "--work": "state"}
    options = [part for option, name in files.items() for part in (option, str(folder / name))]
    return [sys.executable, "-m", "fedsofim", "node", "--superlink", str(where), *options]


def superlink_command(server: Path, where: Address) -> list[str]:
    """What start-superlink.sh runs, for a SuperLink on this machine: the SuperLink, and the front before it."""
    return [
        *(sys.executable, "-m", "fedsofim.deploy.flower.front", "--server", str(server)),
        *("--host", where.host, "--port", str(where.port), "--inner", str(where.inner)),
        *(["--insecure"] if where.insecure else []),
    ]


# --- processes in general -----------------------------------------------------------------------------------


@contextlib.contextmanager
def running(arguments: list[str], env: Mapping[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a group of its own; on the way out the whole group is stopped."""
    process = start(arguments, env, log)
    try:
        yield process
    finally:
        stop(process)


def start(arguments: list[str], env: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as file:
        return subprocess.Popen(arguments, env=dict(env), stdout=file, stderr=file, start_new_session=True)


def stop(process: subprocess.Popen[bytes], grace: float = 8.0) -> None:
    """Ask the group to end, then make it."""
    for kind, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, 5.0)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, kind)
        end = time.monotonic() + patience
        while time.monotonic() < end:
            process.poll()
            if not _group_lives(process.pid):
                return
            time.sleep(0.1)


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def server_environment(server: Path) -> dict[str, str]:
    """For the coordinator's commands: Flower's configuration lies in the server folder."""
    path = os.pathsep.join([str(Path(command("flwr")).parent), os.environ.get("PATH", "")])
    return {**os.environ, **FLOWER, "PATH": path, "FLWR_HOME": str((server / "flwr").absolute())}


def wait_for(ready: Callable[[], bool], seconds: float, what: str) -> None:
    end = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > end:
            raise InputError(f"{what} did not happen within {seconds:g} s")
        time.sleep(0.2)


def listening(port: int) -> bool:
    with socket.socket() as s:
        s.settimeout(1)
        return s.connect_ex(("127.0.0.1", port)) == 0


def link_of(server: Path) -> str:
    """Where the coordinator's commands reach the SuperLink: host:port."""
    try:
        found = tomllib.loads((server / "flwr" / "config.toml").read_text(encoding="utf-8"))
        return str(found["superlink"]["federation"]["address"])
    except FileNotFoundError:
        raise InputError(f"{server}: not a server folder; `fedsofim federation init` writes one") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise InputError(f"{server / 'flwr' / 'config.toml'}: it names no SuperLink ({error})") from error


def link_answers(server: Path) -> bool:
    """Is anybody there?"""
    host, _, port = link_of(server).rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=2):
            return True
    except (OSError, ValueError):
        return False


def submit(server: Path, config: Mapping[str, Any]) -> int:
    """Start a run of the app with this run-config; its number."""
    pairs = " ".join(f"{key}={_toml(value)}" for key, value in config.items())
    result = flwr(
        ["run", str(APP), "federation", "--run-config", pairs, "--format", "json"], server_environment(server)
    )
    if not result.get("success"):
        raise InputError(f"the SuperLink did not take the run: {result.get('error-message', result)}")
    return int(result["run-id"])


def run_status(server: Path, run: int) -> str:
    """Flower's word for how a run is doing, e.g. 'running' or 'finished:completed'."""
    result = flwr(["ls", "federation", "--run-id", str(run), "--format", "json"], server_environment(server))
    runs = result.get("runs") or [{}]
    return str(runs[0].get("status", "unknown"))


_PATIENCE = 600  # seconds until a command of Flower's that does not end is given up


def flwr(arguments: list[str], env: Mapping[str, str]) -> dict[str, Any]:
    """What a command of Flower's says, as plain data; what goes wrong is in it too."""
    asked = [command("flwr"), *arguments]
    try:
        done = subprocess.run(asked, env=dict(env), capture_output=True, text=True, timeout=_PATIENCE)
    except subprocess.TimeoutExpired:
        return {"success": False, "error-message": f"flwr {arguments[0]} did not end within {_PATIENCE} s"}
    try:
        return json.loads(done.stdout)
    except ValueError:
        return {"success": False, "error-message": " ".join((done.stderr or done.stdout).split())[-500:]}


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value) if isinstance(value, str) else repr(value)
