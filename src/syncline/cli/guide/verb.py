"""`syncline guide`: the pages that errors and manuals name, from what is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from syncline.cli.shell.output import JsonOption, emit, examples

if TYPE_CHECKING:
    from rich.console import Console

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
        emit({"pages": listed}, json, lambda console: _list(console, titles))
    else:
        text = read_page(page)
        emit({"page": page, "title": title(text), "markdown": text}, json, lambda console: _show(console, text))


def _list(console: Console, titles: dict[str, str]) -> None:
    width = max(map(len, titles)) + 2
    for name, text in titles.items():
        console.print(f"{name:{width}}{text}", soft_wrap=True)
    console.print("\nsyncline guide PAGE prints one")


def _show(console: Console, text: str) -> None:
    if console.is_terminal:
        from rich.markdown import Markdown

        console.print(Markdown(text))
    else:
        console.file.write(text)
