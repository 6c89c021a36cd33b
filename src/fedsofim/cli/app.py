"""The program `fedsofim`: its commands put together, and errors told in one line."""

import os
import sys
from typing import Annotated, NoReturn

import typer

import fedsofim
from fedsofim.cli import certificates, deployment, experiments, federations
from fedsofim.cli.analysis import theory
from fedsofim.cli.attacks import audit
from fedsofim.cli.image_features import features
from fedsofim.cli.limits import limit
from fedsofim.cli.partitions import partition
from fedsofim.cli.planning import plan
from fedsofim.cli.prices import methods, privacy
from fedsofim.cli.runs import run
from fedsofim.errors import InputError

app = typer.Typer(
    help="Differentially private federated optimization: what leaves a client is priced by its own program.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


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
    run, plan, limit, theory, privacy, audit, methods, partition, features, experiments.demo, experiments.compare,
    experiments.tune, experiments.report, deployment.node, deployment.serve,
):  # fmt: skip
    app.command()(command)
app.add_typer(federations.app, name="federation")
app.add_typer(certificates.app, name="certificate")


def main() -> None:
    """Entry point: errors meant for the user come out as one line, without a traceback."""
    try:
        code = app(standalone_mode=False)
    except InputError as error:
        fail(str(error), 2)
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except OSError as error:
        fail(f"{error.filename or ''}: {error.strerror or error}", 1)
    except Exception as error:  # click's own usage errors know how to show themselves
        if not hasattr(error, "show") or not hasattr(error, "exit_code"):
            raise
        error.show()  # type: ignore[attr-defined]
        sys.exit(error.exit_code)  # type: ignore[attr-defined]
    if code == 130:
        print("interrupted; no file was left half written", file=sys.stderr, flush=True)
        os._exit(130)  # an orderly exit would free buffers that a compiled run may still be writing
    sys.exit(code or 0)


def fail(message: str, code: int) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(code)
