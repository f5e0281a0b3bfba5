"""`syncline top`: what `syncline watch --serve` shows, at a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from syncline.cli.shell.output import JsonOption, examples, print_json

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
    made, hub, title = _source(agent, replay, interfaces, bursts, links, expect, spans_socket, root)
    stop = threading.Event()
    worker = threading.Thread(target=made.run, args=(stop,), name="syncline-watch", daemon=True)
    worker.start()
    try:
        if json:
            stop.wait(2.0)
        else:
            from syncline.watch.terminal import WatchScreen

            WatchScreen(hub, title).run()
    finally:
        stop.set()
        worker.join(5.0)
        if hasattr(made, "close"):
            made.close()
    if json:
        from syncline.report.text.check.watch import frame_json

        print_json(frame_json(hub.frame))


def _source(
    agent: list[str] | None,
    replay: Path | None,
    interfaces: str | None,
    bursts: str,
    links: Path | None,
    expect: Path | None,
    spans_socket: Path | None,
    root: Path,
) -> tuple[Any, Any, str]:
    """Return what makes the frames, its hub and its title."""
    if replay:
        from syncline.watch.prediction import Prediction
        from syncline.watch.replay import Replay

        player = Replay.read(replay, prediction=Prediction.read(expect) if expect else None)
        return player, player.hub, player.title
    if agent:
        from syncline.watch.fleet.fleet import Fleet
        from syncline.watch.fleet.sources import AgentReader

        fleet = Fleet([AgentReader.of(text) for text in agent])
        return fleet, fleet.hub, f"{len(agent)} agents"
    from syncline.watch.setup import DEFAULT_INTERFACES, Wish, make_agent
    from syncline.watch.spans.unix_socket import free_socket

    here = spans_socket or (free_socket() if root == Path("/") else "")
    texts = {"links": links, "expect": expect, "spans_socket": here, "root": root}
    given = {key: str(path) for key, path in texts.items() if path}
    made = make_agent(Wish(**given, interfaces=interfaces or DEFAULT_INTERFACES, bursts=bursts))  # type: ignore[arg-type]
    return made, made.hub, made.options.host
