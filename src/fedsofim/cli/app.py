"""The program `fedsofim`: its commands put together, and errors told in one line."""

import os
import sys
import warnings
from typing import Annotated, Any, NoReturn

import typer

import fedsofim
from fedsofim.cli import certificates, deployment, experiments, federations, ledgers
from fedsofim.cli.advice import fitting, options_of
from fedsofim.cli.analysis import theory
from fedsofim.cli.attacks import audit
from fedsofim.cli.image_features import features
from fedsofim.cli.limits import limit
from fedsofim.cli.model_list import models
from fedsofim.cli.models import model, predict
from fedsofim.cli.partitions import partition
from fedsofim.cli.planning import plan
from fedsofim.cli.prices import methods, privacy
from fedsofim.cli.runs import run
from fedsofim.cli.schemas import schema
from fedsofim.errors import DataWarning, InputError
from fedsofim.interrupts import SAID, heed_from_now

app = typer.Typer(
    help="Differentially private federated optimization: what leaves a client is priced by its own program.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


#: What may be missing, and the extra it comes with.
EXTRAS = {"flwr": "flower", "cryptography": "flower", "pyarrow": "parquet", "torch": "torch", "onnx": "onnx",
          "sklearn": "sklearn", "flax": "flax", "equinox": "equinox", "keras": "keras"}  # fmt: skip


def _version(asked: bool) -> None:
    if asked:
        print(f"fedsofim {fedsofim.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="The version, and nothing else.")
    ] = False,
) -> None:
    """What stands before a command."""


for command in (
    run, predict, model, schema, plan, limit, theory, privacy, audit, methods, models, partition, features,
    experiments.demo, experiments.compare, experiments.tune, experiments.report, deployment.serve,
):  # fmt: skip
    app.command()(command)
app.add_typer(deployment.nodes, name="node")
app.add_typer(federations.app, name="federation")
app.add_typer(certificates.app, name="certificate")
app.add_typer(ledgers.app, name="ledger")


def main() -> None:
    """Entry point: errors meant for the user come out as one line, without a traceback."""
    heed_from_now()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", DataWarning)
            warnings.showwarning = _note
            code = app(standalone_mode=False)
    except InputError as error:
        fail(_fitted(str(error)), 2)
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except ImportError as error:
        if error.name == "fcntl":  # only systems of the Unix family have it
            fail("nodes and coordinators need Linux or macOS; everything else works on this system too", 2)
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        fail(f"this needs {error.name}, which is not installed: pip install 'fedsofim[{extra}]'", 2)
    except OSError as error:
        fail(": ".join(map(str, filter(None, (error.filename, error.strerror or error)))), 1)
    except Exception as error:  # click's own usage errors know how to show themselves
        if not hasattr(error, "show") or not hasattr(error, "exit_code"):
            raise
        error.show()  # type: ignore[attr-defined]
        sys.exit(error.exit_code)  # type: ignore[attr-defined]
    if code == 130:
        print(SAID, file=sys.stderr, flush=True)
        os._exit(130)  # an orderly exit would free buffers that a compiled run may still be writing
    sys.exit(code or 0)


def _fitted(message: str) -> str:
    return fitting(message, options_of(typer.main.get_command(app)))


def _note(message: Any, category: type[Warning], filename: str, line: int, *rest: Any) -> None:
    """What a user should know about the data, as a line; any other warning as Python shows it."""
    if issubclass(category, DataWarning):
        print(f"note: {_fitted(str(message))}", file=sys.stderr)
    else:
        print(warnings.formatwarning(message, category, filename, line), file=sys.stderr, end="")


def fail(message: str, code: int) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(code)
