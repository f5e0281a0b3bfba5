"""`syncline capture`: a host in a folder or archive, to audit elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from syncline.cli.shell.output import JsonOption, emit, examples

if TYPE_CHECKING:
    from rich.console import Console

EPILOG = examples(
    "syncline capture h3.tar.gz",
    "syncline capture h3/ && syncline audit --root h3/",
    "srun --ntasks-per-node=1 sh -c 'syncline capture /shared/$(hostname).tar.gz'",
)
app = typer.Typer()


@app.command(epilog=EPILOG)
def capture(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A new folder, or a new .tar.gz file.")],
    json: JsonOption = False,
) -> None:
    """Write what an audit of this host reads to a folder or archive.

    Holds hardware and settings; no keys, no user's files or processes, and of the environment and the kernel command
    line only what the rules look at. `syncline/manifest.json` inside says what it holds and what could not be read.
    """
    from syncline.audit.capture import HELD, NOT_HELD
    from syncline.audit.capture import capture as capture_host
    from syncline.host.root import Root

    done = capture_host(Root.live(), path)

    def text(console: Console) -> None:
        size = f"{done.size_bytes / 1024:,.0f} KiB"
        console.print(
            f"wrote {done.path}: host {done.host}, {done.num_files:,} files, {done.num_commands} commands, {size}",
            soft_wrap=True,
        )
        console.print("\nit holds:", *(f"  {line}" for line in HELD), sep="\n", soft_wrap=True)
        console.print("\nit does not hold:", *(f"  {line}" for line in NOT_HELD), sep="\n", soft_wrap=True)
        if done.unreadable:
            console.print(f"\ncould not be read ({len(done.unreadable)}):", soft_wrap=True)
            for name, reason in list(done.unreadable.items())[:20]:
                console.print(f"  {name}: {reason}", soft_wrap=True)
            if len(done.unreadable) > 20:
                console.print(f"  and {len(done.unreadable) - 20} more, in syncline/manifest.json", soft_wrap=True)
        console.print(f"\naudit it anywhere: syncline audit --root {done.path}", soft_wrap=True)

    emit(done.to_json(), json, text)
