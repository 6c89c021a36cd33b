"""Workers that start at once: one process imports everything, then forks a child for every message.

Flower starts a new Python process on the node for each message, and importing takes seconds. Here the command that
stands in for `flwr-clientapp` only hands its arguments to the nursery over a Unix socket and waits. The nursery has one
thread and has not touched JAX's devices, so a fork is clean; a child lives for one message and shares no randomness
with another, because noise comes from the operating system. Without a nursery the worker starts the slow way.
"""

import json
import os
import signal
import socket
import sys
import warnings
from pathlib import Path


def run_nursery(path: Path) -> None:
    """Serve until told to stop."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before NumPy is imported: its helpers would be threads
    from fedsofim.deploy.flower.pinned import patched

    patched()  # imports what a worker needs, once
    warnings.filterwarnings("ignore", message="os.fork", category=RuntimeWarning)  # JAX is imported, not running
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children are not waited for
    os.chdir(path.parent)
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    previous = os.umask(0o177)  # only the node's own user may hand over
    listener.bind(path.name)
    os.umask(previous)
    listener.listen(16)
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            _child(connection)
        connection.close()


def _child(connection: socket.socket) -> None:
    """One message; never returns."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        sys.argv = ["flwr-clientapp", *json.loads(connection.makefile("rb").readline())]
        from fedsofim.deploy.flower.pinned import worker

        worker()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(bool(ended.code))
    finally:
        connection.sendall(bytes([code & 255]))
        os._exit(code & 255)


if __name__ == "__main__":
    run_nursery(Path(sys.argv[1]))
