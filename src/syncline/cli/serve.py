"""`syncline serve`: a form in a browser instead of files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from syncline.cli.shell.output import JsonOption, err, examples, print_json

EPILOG = examples(
    "syncline serve",
    "syncline serve --port 0",
    "syncline serve --address 10.0.0.7 --token-file token",
)
RUNS_BARE = True
app = typer.Typer()


@app.command(epilog=EPILOG)
def serve(
    address: Annotated[
        str, typer.Option(help="Address to listen on; other than loopback needs --token-file.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free one.")] = 9751,
    token_file: Annotated[Path | None, typer.Option(help="File with the token that clients must send.")] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate (PEM), with --tls-key.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key (PEM).")] = None,
    for_: Annotated[str | None, typer.Option("--for", help="Stop after this long: 10s.")] = None,
    json: JsonOption = False,
) -> None:
    """Serve a form: describe a cluster and a job, see picture, plan and cost, and download both files.

    Listens on loopback unless a token protects it. No request reads or writes a file.
    """
    import contextlib
    import threading
    from dataclasses import replace

    from syncline.describe import units
    from syncline.report.page.form import make_form
    from syncline.watch.serve.access import Access, read_token
    from syncline.watch.serve.server import Server

    seconds = units.time(for_) if for_ is not None else None
    token = read_token(token_file) if token_file else ""
    access = Access(address, port, token, *(str(path) if path else "" for path in (tls_cert, tls_key)))
    server = Server(make_form(access), access)
    url = replace(access, port=server.start()).url
    try:
        if json:
            print_json({"url": url, "guarded": bool(token)})
        else:
            err().print(f"syncline serve: {url}  (interrupt to stop)")
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait(None if seconds is None else min(seconds, threading.TIMEOUT_MAX))
    finally:
        server.close()
