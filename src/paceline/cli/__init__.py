"""The ``paceline`` command. One file a command: a module here with a click command ``command``.

Commands are imported when they are asked for, and import what they need when they run, so that
``--help`` is instant and the torch-free ones stay so. Nothing here knows what a command does.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.metadata import version
from pkgutil import iter_modules

import click

from paceline.errors import PacelineError

EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


class _Commands(click.Group):
    """The commands of this package, found by their modules' names."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        names = [module.name for module in iter_modules(__path__)]
        return sorted(name for name in names if not name.startswith("_"))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = import_module(f"{__name__}.{cmd_name}").command
        return command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("paceline"), prog_name="paceline")
def paceline() -> None:
    """The synchronisation strategy of data-parallel PyTorch training as a one-word choice.

    \b
    Try:
      paceline run -n 4 --strategy ssp:3 train.py
      paceline compare -n 4 --strategies sync,async,ssp:3 train.py
    """


def main() -> None:
    """The entry point: run the command, turn what went wrong into one sentence and an exit code."""
    try:
        code = paceline.main(prog_name="paceline", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(EXIT_INTERRUPTED)
    except PacelineError as error:
        click.echo(f"paceline: {error}", err=True)
        sys.exit(EXIT_USAGE)
    except OSError as error:
        if error.filename is None:
            raise
        click.echo(f"paceline: {error.filename}: {error.strerror}.", err=True)
        sys.exit(EXIT_USAGE)
    sys.exit(code)
