"""Where the `syncline` command begins."""

from __future__ import annotations

import gc
import os
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line of this process and exit with its status."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:  # started with it closed: nobody listens
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
            setattr(sys, name, os.fdopen(number, "w", closefd=False))
    gc.set_threshold(100_000, 20, 100)  # questions make many objects and hardly a ring: a plan takes 8 % less
    from syncline.cli.shell.app import main as run

    run()
