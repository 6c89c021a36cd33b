"""The command line: one file per family of commands, each thin. app.py puts them together."""

from fedsofim.cli.app import main

__all__ = ["main"]
