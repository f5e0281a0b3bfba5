"""`syncline top`: what `syncline watch --serve` shows, at a terminal."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from syncline.cli.shell.output import JsonOption, examples, print_json

if TYPE_CHECKING:
    from syncline.watch.feed import Feed

app = typer.Typer()
RUNS_BARE = True


@app.command(
    epilog=examples(
        "syncline top",
        "syncline top --bursts 'eth.*' --links links.yaml",
        "syncline top --agent http://host-00:9750 --agent http://host-01:9750",
        "syncline top --replay run.timeline",
        "syncline top --json",
    ),
)
def top(
    agent: Annotated[
        list[str] | None, typer.Option(help="Show this agent instead: URL, or URL#TOKENFILE (repeat).")
    ] = None,
    replay: Annotated[Path | None, typer.Option(help="Play a timeline instead.")] = None,
    interfaces: Annotated[str | None, typer.Option(help='Interfaces to read, as a pattern: "eth.*|ib.*".')] = None,
    bursts: Annotated[str, typer.Option(help="Interfaces to sample every millisecond, as a pattern.")] = "",
    links: Annotated[Path | None, typer.Option(help="YAML that names interfaces as links.")] = None,
    expect: Annotated[Path | None, typer.Option(help="What was predicted: a plan, a timeline or a table.")] = None,
    spans_socket: Annotated[
        Path | None, typer.Option(help="Listen here for spans of the runtime (default: where it looks by itself).")
    ] = None,
    root: Annotated[Path, typer.Option(help="Read /sys and /proc below this folder.")] = Path("/"),
    json: JsonOption = False,
) -> None:
    """Watch this host, or other agents, at a terminal.

    Alerts, links, collectives and the last step, twice a second. Keys: q quit, space pause, s sort, / filter, d dark
    or light. With --json: one look after two seconds, as `syncline watch --json` prints it.
    """
    import sys
    import threading

    from syncline.cli.watch import refuse_idle
    from syncline.errors import UsageError

    of_host = {"--interfaces": interfaces, "--bursts": bursts, "--links": links, "--spans-socket": spans_socket}
    refuse_idle({"--replay": replay, "--agent": agent}, of_host, {"--expect": expect})
    if not json and not (sys.stdout.isatty() and sys.stdin.isatty()):
        raise UsageError("syncline top needs a terminal.", hint="Use `syncline watch`, or add --json.")
    stop = threading.Event()
    with _feed(agent, replay, interfaces, bursts, links, expect, spans_socket, root) as feed:
        worker = threading.Thread(target=feed.run, args=(stop,), name="syncline-watch", daemon=True)
        worker.start()
        try:
            if json:
                stop.wait(2.0)
            else:
                from syncline.watch.terminal import WatchScreen

                WatchScreen(feed.hub, feed.title).run()
        finally:
            stop.set()
            worker.join(5.0)
    if json:
        from syncline.report.text.check.watch import frame_json

        print_json(frame_json(feed.hub.frame))


def _feed(
    agent: list[str] | None,
    replay: Path | None,
    interfaces: str | None,
    bursts: str,
    links: Path | None,
    expect: Path | None,
    spans_socket: Path | None,
    root: Path,
) -> AbstractContextManager[Feed]:
    """Return what is shown."""
    from syncline.watch.feed import fleet_feed, host_feed, replay_feed
    from syncline.watch.setup import DEFAULT_INTERFACES, Wish
    from syncline.watch.spans.unix_socket import free_socket

    if replay:
        return replay_feed(replay, expect=expect)
    if agent:
        return fleet_feed(agent)
    here = spans_socket or (free_socket() if root == Path("/") else "")
    texts = {"links": links, "expect": expect, "spans_socket": here, "root": root}
    given = {key: str(path) for key, path in texts.items() if path}
    return host_feed(Wish(**given, interfaces=interfaces or DEFAULT_INTERFACES, bursts=bursts))  # type: ignore[arg-type]
