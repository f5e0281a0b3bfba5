"""`syncline watch`: the agent of a host, its page, and replays of runs in the same page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from syncline.cli.output import JsonOption, emit, err, examples
from syncline.describe.plain import JsonObject

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping

    from rich.console import Console

    from syncline.watch.agent import Agent
    from syncline.watch.frame import Frame
    from syncline.watch.history import History as Past
    from syncline.watch.prediction import Prediction
    from syncline.watch.replay import Replay as Player
    from syncline.watch.serve.access import Access
    from syncline.watch.serve.notes import NoteBook
    from syncline.watch.serve.server import Feed, Server

app = typer.Typer()
RUNS_BARE = True
MAX_SHOWN = 20
"""Alerts told in full; a broken switch raises hundreds."""

Interfaces = Annotated[str | None, typer.Option(help='Interfaces to read, as a pattern: "eth.*|ib.*".')]
Bursts = Annotated[str, typer.Option(help="Interfaces to sample every millisecond for microbursts, as a pattern.")]
Netns = Annotated[list[str] | None, typer.Option(help="Also this network namespace: NAME or NAME=PATH (repeat).")]
Links = Annotated[Path | None, typer.Option(help="YAML that names interfaces as links, with capacity and rail.")]
Cluster = Annotated[
    str | None, typer.Option("--cluster", "-c", metavar="FILE|PRESET", help="Take names and rates from it.")
]
Nics = Annotated[
    str | None, typer.Option(help="With --cluster: this host's interfaces in the order of its NICs: eth0,eth1.")
]
Host = Annotated[str | None, typer.Option(help="What this host is called (default: its host name).")]
Expect = Annotated[Path | None, typer.Option(help="What was predicted: a plan, a simulated timeline, or a YAML table.")]
Rules = Annotated[Path | None, typer.Option(help="YAML of thresholds that differ from the defaults.")]
History = Annotated[Path | None, typer.Option(help="Keep the past in this file.")]
HistorySize = Annotated[str, typer.Option(help="Most that the past may take.")]
SpansSocket = Annotated[
    Path | None,
    typer.Option(help="Listen here for spans of the runtime (default: where it looks by itself)."),
]
SpansGroup = Annotated[
    str, typer.Option(help='Let jobs of this group report too (default for root: "syncline", where the host has it).')
]
Timelines = Annotated[Path | None, typer.Option(help="Folder in which timelines of the run appear.")]
Inspector = Annotated[Path | None, typer.Option(help="Folder of NCCL Inspector's JSON files.")]
Recorder = Annotated[Path | None, typer.Option(help="Folder of PyTorch flight recorder dumps.")]
Serve = Annotated[bool, typer.Option("--serve", help="Serve the page and /metrics.")]
Address = Annotated[str, typer.Option(help="Address to serve on; elsewhere than loopback needs a token.")]
Port = Annotated[int, typer.Option(help="Port to serve on; 0 lets the system choose.")]
TokenFile = Annotated[Path | None, typer.Option(help="File with the token that readers must show.")]
TlsCert = Annotated[Path | None, typer.Option(help="Certificate chain for TLS (PEM).")]
TlsKey = Annotated[Path | None, typer.Option(help="Its key (PEM).")]
Agents = Annotated[
    list[str] | None, typer.Option("--agent", help="Show other agents instead: URL, or URL#TOKENFILE (repeat).")
]
Prometheus = Annotated[
    str | None,
    typer.Option(help="Show what this Prometheus server has collected, from agents or node_exporter and DCGM: URL."),
]
Alertmanager = Annotated[str | None, typer.Option(help="Also send alerts to this Alertmanager: URL.")]
DemoOption = Annotated[
    bool, typer.Option("--demo", help="Show the page with an invented job that has a fault every half minute.")
]
Replay = Annotated[Path | None, typer.Option(help="Play a timeline instead of watching this host.")]
Speed = Annotated[float, typer.Option(help="With --replay: seconds of the timeline in a second.")]
Otel = Annotated[
    str | None, typer.Option(help="Also send metrics to this OpenTelemetry collector: URL (OTLP over HTTP).")
]
For = Annotated[str | None, typer.Option("--for", help="Stop after this time: 10s, 5min. Default: until interrupted.")]
Every = Annotated[str, typer.Option(help="Time between two looks.")]
Root = Annotated[Path, typer.Option(help="Read /sys and /proc below this folder.")]
Gpus = Annotated[int | None, typer.Option(help="GPUs of the job, for the cost of an alert.")]
Price = Annotated[float | None, typer.Option(help="Dollars a GPU-hour, for the cost of an alert.")]


@app.callback(
    invoke_without_command=True,
    subcommand_metavar="",
    epilog=examples(
        "syncline watch --demo",
        "syncline watch --for 10s",
        "syncline watch --serve --bursts 'eth.*' --history watch.db",
        "syncline watch --serve --links links.yaml --expect plan.json --spans-socket spans.sock",
        "syncline watch --serve --address 10.0.0.7 --token-file token",
        "syncline watch --serve --agent http://host-00:9750 --agent http://host-01:9750",
        "syncline watch --serve --replay run.timeline --expect simulated.timeline",
    ),
)
def watch(
    serve: Serve = False,
    interfaces: Interfaces = None,
    bursts: Bursts = "",
    links: Links = None,
    cluster: Cluster = None,
    nics: Nics = None,
    host: Host = None,
    expect: Expect = None,
    rules: Rules = None,
    history: History = None,
    history_size: HistorySize = "256MiB",
    spans_socket: SpansSocket = None,
    spans_group: SpansGroup = "",
    timelines: Timelines = None,
    inspector: Inspector = None,
    flight_recorder: Recorder = None,
    netns: Netns = None,
    address: Address = "127.0.0.1",
    port: Port = 9750,
    token_file: TokenFile = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    agent: Agents = None,
    prometheus: Prometheus = None,
    replay: Replay = None,
    demo: DemoOption = False,
    speed: Speed = 1.0,
    otel: Otel = None,
    alertmanager: Alertmanager = None,
    gpus: Gpus = None,
    price: Price = None,
    for_: For = None,
    every: Every = "250ms",
    root: Root = Path("/"),
    json: JsonOption = False,
) -> None:
    """Watch this host: links, collectives and steps, beside what was predicted.

    Reads interfaces four times a second, other counters (InfiniBand, driver, TCP, GPUs) once, and chosen interfaces
    every millisecond; takes spans from the job, and raises alerts that say where, since when, why and what it costs.
    With --serve there is a page; without, a line for each alert. Changes nothing on the host.
    """
    from syncline.describe import units
    from syncline.watch.serve.access import Access, read_token

    of_host = {
        "--interfaces": interfaces, "--bursts": bursts, "--links": links, "--cluster": cluster, "--nics": nics,
        "--host": host, "--netns": netns, "--spans-socket": spans_socket, "--spans-group": spans_group,
        "--timelines": timelines, "--inspector": inspector, "--flight-recorder": flight_recorder, "--otel": otel,
        "--gpus": gpus, "--price": price,
    }  # fmt: skip
    of_run = {"--expect": expect, "--rules": rules}
    refuse_idle({"--replay": replay, "--agent": agent, "--prometheus": prometheus, "--demo": demo}, of_host, of_run)
    seconds = units.time(for_) if for_ is not None else None
    token = read_token(token_file) if token_file else ""
    access = Access(address, port, token, *(str(path) if path else "" for path in (tls_cert, tls_key)))
    door = access if serve or demo else None
    if demo:
        payload = _demo(door, seconds, json)
    elif replay:
        player, feed = _replayed(replay, speed, expect, rules, history)
        try:
            payload = _run(feed, player.run if serve else player.play, door, seconds, json)
        finally:
            player.close()
    elif agent or prometheus:
        feed, run = _fleet(agent, prometheus, history, units.time(every))
        payload = _run(feed, run, door, seconds, json, alertmanager=alertmanager)
    else:
        from syncline.watch.setup import DEFAULT_INTERFACES, Wish, make_agent
        from syncline.watch.spans.unix_socket import free_socket

        texts = {
            "links": links,
            "expect": expect,
            "rules": rules,
            "history": history,
            "spans_socket": spans_socket or (free_socket() if root == Path("/") else ""),
            "timelines": timelines,
            "inspector": inspector,
            "flight_recorder": flight_recorder,
            "root": root,
        }
        named = {"host": host} if host else {}
        wish = Wish(
            **named,
            **{key: str(path) for key, path in texts.items() if path},
            interfaces=interfaces or DEFAULT_INTERFACES,
            bursts=bursts,
            spans_group=spans_group,
            netns=netns or (),
            cluster=cluster or "",
            nics=nics.split(",") if nics else (),
            history_bytes=units.size(history_size),
            tick_s=units.time(every),
            num_gpus=gpus,
            usd_per_gpu_hour=price,
        )
        made = make_agent(wish)
        try:
            payload = _run(_feed(made), made.run, door, seconds, json, otel=otel, alertmanager=alertmanager, agent=made)
        finally:
            made.close()
    emit(payload, json, lambda console: _show(console, payload))


def _demo(access: Access | None, seconds: float | None, json: bool) -> dict[str, Any]:
    """Serve the invented job until interrupted."""
    from syncline.watch.demo import PLAN, Demo
    from syncline.watch.serve.server import Feed

    made = Demo()
    try:
        title, rates = "demo (invented numbers)", PLAN.link_rate_Bps
        feed = Feed(made.hub, made.history, title, "live", _expected(PLAN), None, rates)
        return _run(feed, made.run, access, seconds, json)
    finally:
        made.close()


def refuse_idle(others: Mapping[str, Any], of_host: Mapping[str, Any], of_run: Mapping[str, Any]) -> None:
    """Refuse options that would say nothing: those of this host, and of one run, where something else is shown."""
    from syncline.errors import UsageError

    shown = [name for name, value in others.items() if value]
    if len(shown) > 1:
        raise UsageError(f"{shown[0]} and {shown[1]} each show something else than this host.", hint="Give one.")
    idle = {**of_host, **(of_run if shown != ["--replay"] else {})} if shown else {}
    given = [name for name, value in idle.items() if value]
    if given:
        raise UsageError(f"{given[0]} is for watching this host; {shown[0]} shows something else.", hint="Drop one.")


def _feed(agent: Agent) -> Feed:
    from syncline.watch.serve.metrics import registry
    from syncline.watch.serve.server import Feed

    prediction = agent.options.prediction
    rates = prediction.link_rate_Bps
    expected = _expected(prediction)
    notes = _kept_notes(agent.history)
    return Feed(
        agent.hub, agent.history, agent.options.host, "live", expected, registry(agent), rates, notes=notes
    )  # fmt: skip


def _kept_notes(history: Past | None) -> NoteBook:
    """Return the notes that an earlier watch kept in its history; those that cannot be read are left out."""
    import contextlib

    from syncline.watch.foreign import admit
    from syncline.watch.serve.notes import Note, NoteBook

    found = []
    for text in history.notes() if history is not None else ():
        with contextlib.suppress(ValueError):
            found.append(admit(Note, text))
    return NoteBook(found)


def _expected(prediction: Prediction) -> dict[str, Any]:
    num_gpus, price = prediction.num_gpus or 0, prediction.usd_per_gpu_hour or 0.0
    return {
        "source": prediction.source,
        "step_s": prediction.step_s,
        "exposed_s": prediction.exposed_s,
        "usd_per_hour": num_gpus * price or None,
    }


def _replayed(
    replay: Path, speed: float, expect: Path | None, rules: Path | None, history: Path | None
) -> tuple[Player, Feed]:
    from syncline.watch.history import History as Past
    from syncline.watch.prediction import Prediction
    from syncline.watch.replay import Replay as Player
    from syncline.watch.rules.thresholds import read_thresholds
    from syncline.watch.serve.server import Feed

    prediction = Prediction.read(expect) if expect else Prediction()
    player = Player.read(
        replay,
        speed=speed,
        history=Past(history) if history else None,
        prediction=prediction,
        thresholds=read_thresholds(rules) if rules else None,
    )
    feed = Feed(
        player.hub, player.history, player.title, "replay", _expected(prediction), None, prediction.link_rate_Bps,
        player.pace(),
    )  # fmt: skip
    return player, feed


def _fleet(agents: list[str] | None, prometheus: str | None, history: Path | None, every_s: float) -> tuple[Feed, Any]:
    from syncline.watch.fleet.fleet import Fleet, Reader
    from syncline.watch.fleet.sources import AgentReader
    from syncline.watch.history import History as Past
    from syncline.watch.serve.server import Feed

    readers: list[Reader] = [AgentReader.of(text) for text in agents or []]
    if prometheus:
        from syncline.watch.fleet.prometheus_source import PrometheusReader

        readers = [PrometheusReader(prometheus)]
    past = Past(history) if history else None
    fleet = Fleet(readers, every_s=max(1.0, every_s), history=past)
    return Feed(fleet.hub, past, f"{len(readers)} agents" if agents else "Prometheus", "live"), fleet.run


def _run(
    feed: Feed,
    run: Callable[[threading.Event], None],
    access: Access | None,
    seconds: float | None,
    json: bool,
    *,
    otel: str | None = None,
    alertmanager: str | None = None,
    agent: Agent | None = None,
) -> dict[str, Any]:
    """Run until the time is up, the user interrupts or the system says end; return what was seen.

    What ends the watch by itself is raised here, so that the command's exit status tells of it.
    """
    import contextlib
    import threading
    import time

    stop = threading.Event()
    failed: list[BaseException] = []

    def work() -> None:
        try:
            run(stop)
        except BaseException as error:  # told by the main thread
            failed.append(error)

    with contextlib.ExitStack() as opened:
        if otel and agent is not None:
            from syncline.watch.serve.otel import OtelExporter

            opened.callback(OtelExporter(agent, otel).close)
        url = ""
        if access is not None:
            server, url = _start_server(feed, access)
            opened.callback(server.close)
        if alertmanager:
            from syncline.watch.serve.alertmanager import AlertmanagerSender

            opened.callback(AlertmanagerSender(feed.hub, alertmanager, url).close)
        worker = threading.Thread(target=work, name="syncline-watch", daemon=True)
        until = time.monotonic() + seconds if seconds is not None else float("inf")
        worker.start()
        with contextlib.suppress(KeyboardInterrupt):
            _wait(feed, stop, worker, until, quiet=json)
        stop.set()
        worker.join(5.0)
    if failed:
        raise failed[0]
    return payload_of(feed.hub.frame)


def _start_server(feed: Feed, access: Access) -> tuple[Server, str]:
    from dataclasses import replace

    from syncline.watch.serve.server import Server, make_app

    server = Server(make_app(feed, access), access)
    port = server.start()
    url = replace(access, port=port).url
    err().print(f"syncline watch: {url}  (interrupt to stop)")
    return server, url


def _wait(feed: Feed, stop: threading.Event, worker: threading.Thread, until: float, *, quiet: bool) -> None:
    """Wait, and print a line for each alert as it is raised or cleared."""
    import time

    console = err()
    known: dict[tuple[str, str], Any] = {}
    while worker.is_alive() and not stop.is_set() and time.monotonic() < until:
        stop.wait(min(0.2, max(0.0, until - time.monotonic())))
        frame = feed.hub.frame
        if frame is None or quiet:
            continue
        now = {(a["rule"], a["place"]): a for a in frame.alerts}
        for key in now.keys() - known.keys():
            a = now[key]
            what = f"{a['rule']}  {a['place']}: {a['observed']}, expected {a['expected']}"
            console.print(f"{_clock(frame.wall_s)}  {a['severity'].upper():8}  {what}")
        for key in known.keys() - now.keys():
            console.print(f"{_clock(frame.wall_s)}  cleared   {key[0]}  {key[1]}")
        known = now


def _clock(wall_s: float) -> str:
    import datetime

    return datetime.datetime.fromtimestamp(wall_s).strftime("%H:%M:%S")


def payload_of(frame: Frame | None) -> JsonObject:
    """Return a frame as `--json` prints it."""
    if frame is None:
        return {"frames": 0, "links": [], "alerts": [], "health": {}}
    table, load = frame.table, frame.load
    links = [
        {
            "link": table.names[i],
            "rate_Bps": load.rate_Bps[i],
            "capacity_Bps": table.capacity_Bps[i],
            "peak_Bps": load.peak_Bps[i],
            "drops_per_s": load.drops_per_s[i],
            "up": bool(load.up[i]),
        }
        for i in range(len(table))
    ]
    job = frame.job.to_json()
    return {
        "frames": frame.seq,
        "wall_s": frame.wall_s,
        "links": links,
        "collectives": job["collectives"],
        "steps": job["steps"][-5:],
        "alerts": list(frame.alerts),
        "health": dict(frame.health),
    }


def _show(console: Console, payload: JsonObject) -> None:
    from syncline.describe.units import show_rate, show_time

    if not payload["frames"]:
        console.print("Nothing was seen.")
        return
    busiest = sorted(payload["links"], key=lambda row: -(row["rate_Bps"] if row["rate_Bps"] == row["rate_Bps"] else -1))
    console.print(f"{payload['frames']} looks, {len(payload['links'])} links, {len(payload['alerts'])} alerts")
    for row in busiest[:12]:
        known = row["capacity_Bps"] == row["capacity_Bps"]
        use = f"{row['rate_Bps'] / row['capacity_Bps']:6.1%} of {show_rate(row['capacity_Bps'])}" if known else ""
        rate = show_rate(row["rate_Bps"]) if row["rate_Bps"] == row["rate_Bps"] else "-"
        console.print(f"  {row['link']:44} {rate:>12}  {use}{'' if row['up'] else '  down'}")
    for c in payload["collectives"][:8]:
        planned = f", predicted {show_time(c['predicted_s'])}" if c["predicted_s"] else ""
        console.print(f"  {c['key']:44} p50 {show_time(c['p50_s'])}, p99 {show_time(c['p99_s'])}{planned}")
    for a in payload["alerts"][:MAX_SHOWN]:
        cost, since_s = a.get("cost_usd_per_hour"), a.get("since_s") or payload["wall_s"]
        price = "" if cost is None else f", ${cost:.2f} an hour"
        console.print(f"  {a['severity'].upper():8} {a['rule']} at {a['place']} since {_clock(since_s)}{price}")
        seen = "; ".join((f"{a['observed']}, expected {a['expected']}", *a.get("evidence", ())))
        console.print(f"    {seen}. {a['meaning']} {a['fix']}")
    if more := payload["alerts"][MAX_SHOWN:]:
        console.print(f"  ... and {len(more)} more alerts (--json has all)")
    for name, problem in payload["health"].get("problems", {}).items():
        console.print(f"  not read: {name} ({problem})")
