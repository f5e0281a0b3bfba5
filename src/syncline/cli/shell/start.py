"""Where the `syncline` command begins: its own manual at once, everything else through `app`."""

from __future__ import annotations

import gc
import os
import sys
from typing import NoReturn

from syncline.cli.shell.verbs import manual
from syncline.version import __version__


def main() -> NoReturn:
    """Run the command line of this process and exit with its status."""
    words = sys.argv[1:]
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:  # started with it closed: nobody listens
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
            setattr(sys, name, os.fdopen(number, "w", closefd=False))
    completing = "_SYNCLINE_COMPLETE" in os.environ  # the shell asks, and Typer answers
    if not completing and (not words or words in (["--help"], ["-h"])):
        sys.exit(_printed(manual()))
    if words == ["--version"]:
        sys.exit(_printed(f"syncline {__version__}\n"))
    gc.set_threshold(100_000, 20, 100)  # questions make many objects and hardly a ring: a plan takes 8 % less
    from syncline.cli.shell.app import main as run

    run()


def _printed(text: str) -> int:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0
