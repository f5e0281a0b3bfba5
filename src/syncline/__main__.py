"""`python -m syncline` is the `syncline` command."""

from __future__ import annotations

from syncline.cli.shell.start import main

if __name__ == "__main__":
    main()
