"""The command line: its commands, and how it ends."""

from __future__ import annotations

import atexit
import errno
import gc
import io
import signal
import sys
from typing import Annotated

import typer

from decentral_dp.cli.commands import app
from decentral_dp.errors import InputError, Stopped, lacks_memory, printable, readable

# Imports and pictures make hundreds of thousands of objects and hardly a cycle: with the usual 700 new ones between two
# searches for cycles, searching takes a tenth of a short run.
_OBJECTS_BETWEEN_SEARCHES = 400_000
_INTERRUPTED = "Interrupted; nothing was written."


def _print_version(version: bool) -> None:
    if version:
        import importlib.metadata

        typer.echo(f"decentral_dp {importlib.metadata.version('decentral_dp')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Simulate, price and audit private decentralised optimisation."""


def main() -> None:
    """Entry point: 0 done, 1 failed run, 2 bad scenario or input (one sentence, no traceback), 130 interrupted."""
    gc.set_threshold(_OBJECTS_BETWEEN_SEARCHES)
    # Nor is what is left at the end searched, which took as long again: it goes with the process.
    atexit.register(gc.freeze)
    # A shell may start background jobs with SIGINT ignored; both signals must reach the clean-up of what was started.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    # Where the terminal cannot write an ε, a question mark is better than a traceback.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        app(prog_name="decentral-dp")
    except InputError as error:
        typer.echo(f"Error: {error.command}", err=True)
        sys.exit(2)
    except Stopped as stopped:
        typer.echo(printable(str(stopped)), err=True)
        sys.exit(130)
    except KeyboardInterrupt:
        typer.echo(_INTERRUPTED, err=True)
        sys.exit(130)
    except SystemExit as end:
        # typer makes an exit of its own of an interrupt.
        if end.code == 130:
            typer.echo(_INTERRUPTED, err=True)
        raise
    except (MemoryError, SystemError, ImportError) as error:
        if not lacks_memory(error):
            raise
        mend = "Use fewer agents, records or rounds, or a smaller model."
        typer.echo(f"Error: not enough memory ({readable(str(error))}). {mend}", err=True)
        sys.exit(1)
    except (OSError, RuntimeError) as error:
        typer.echo(f"Error: {readable(str(error))}", err=True)
        # A name that is too long is somebody's input.
        sys.exit(2 if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG else 1)


if __name__ == "__main__":
    main()
