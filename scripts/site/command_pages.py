"""The command line as a page, from the program itself: every command with its arguments, options and defaults."""

import re

import click
import typer.main

from fedsofim.cli.app import app


def text() -> str:
    """A section for each command, those of a group below it."""
    return "\n\n".join(_section(["fedsofim", *path], command) for path, command in commands())


def commands() -> list[tuple[list[str], click.Command]]:
    """Every command that can be typed, with its words."""
    return _below([], typer.main.get_command(app))


def _below(path: list[str], command: click.Command) -> list[tuple[list[str], click.Command]]:
    inner = command.commands.items() if isinstance(command, click.Group) else ()
    own = [(path, command)] if path and (not inner or command.params) else []
    return own + [found for name, below in inner for found in _below([*path, name], below)]


def _section(words: list[str], command: click.Command) -> str:
    name = " ".join(words)
    context = click.Context(command, info_name=name)
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    rows = [_row(p, context) for p in command.params if not getattr(p, "hidden", False) and p.name != "help"]
    table = "\n".join(["| option | takes | what it does |", "|---|---|---|", *rows]) if rows else ""
    return f"## `{name}`\n\n{_plain(command.help or '')}\n\n```text\n{usage}\n```\n\n{table}"


def _row(parameter: click.Parameter, context: click.Context) -> str:
    names = ", ".join(f"`{o}`" for o in [*parameter.opts, *parameter.secondary_opts])
    if isinstance(parameter, click.Argument):
        names = f"`{parameter.make_metavar(context)}`"
    return f"| {names} | {_value(parameter, context)} | {_plain(getattr(parameter, 'help', None) or '')} |"


def _value(parameter: click.Parameter, context: click.Context) -> str:
    """What it takes, and what holds where it is not given."""
    if isinstance(parameter.type, click.Choice):
        kind = " ".join(f"`{c}`" for c in parameter.type.choices)
    else:
        kind = "" if getattr(parameter, "is_flag", False) else parameter.type.name
    shown = getattr(parameter, "show_default", None)
    default = shown if isinstance(shown, str) else parameter.get_default(context, call=False)
    if parameter.required:
        return f"{kind}; needed"
    said = "" if default in (None, False, (), [], "") or callable(default) else f"default `{default}`"
    return "; ".join(part for part in (kind, said) if part)


def _plain(text: str) -> str:
    """One line, in which a table's bars are only bars."""
    return re.sub(r"\s+", " ", text).replace("|", "\\|").strip()
