"""`syncline guide`: the pages that errors and manuals name, from what is installed."""

from __future__ import annotations

from typing import Annotated

import typer

from syncline.cli.shell.output import JsonOption, emit, examples, out

app = typer.Typer()
RUNS_BARE = True


@app.command(
    epilog=examples("syncline guide", "syncline guide cluster-file", "syncline guide method/bench > bench.md"),
)
def guide(
    page: Annotated[
        str | None, typer.Argument(metavar="PAGE", help="A page's name; without one, all are listed.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Print a page of the documentation.

    Guides say how to do something and which keys a file has; method/NAME says how a number comes about. A terminal gets
    the page set for reading, a file or a pipe its Markdown.
    """
    from syncline.describe.guide import pages, read_page, title

    if page is None:
        titles = {name: title(path.read_text("utf-8")) for name, path in pages().items()}
        listed = [{"page": name, "title": text} for name, text in titles.items()]
        width = max(map(len, titles)) + 2
        lines = [f"{name:{width}}{text}" for name, text in titles.items()]
        emit({"pages": listed}, json, [*lines, "", "syncline guide PAGE prints one"])
    else:
        text = read_page(page)
        emit({"page": page, "title": title(text), "markdown": text}, json, [_shown(text)])


def _shown(text: str) -> object:
    if not out().is_terminal:
        return text.removesuffix("\n")
    from rich.markdown import Markdown

    return Markdown(text)
