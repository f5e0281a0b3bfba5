"""`syncline watch`: the agent of a host, its page, and replays of runs in the same page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from syncline.cli.frames import options as of
from syncline.cli.shell.derive import GroupedVerbs
from syncline.cli.shell.output import JsonOption, emit, err, examples, tell

if TYPE_CHECKING:
    from collections.abc import Mapping

    from syncline.lab.registry import Visit
    from syncline.watch.feed import Feed

app = typer.Typer()
RUNS_BARE = True


@app.callback(
    invoke_without_command=True,
    cls=GroupedVerbs,
    epilog=examples(
        "syncline watch --demo",
        "syncline watch --for 10s",
        "syncline watch --terminal",
        "syncline watch --serve --history watch.db",
        "syncline watch --serve --links links.yaml --expect plan.json --spans-socket spans.sock",
        "syncline watch --serve --address 10.0.0.7 --token-file token",
        "syncline watch --serve --agent http://host-00:9750 --agent http://host-01:9750",
        "syncline watch --serve --lab any --expect plan.json",
        "syncline watch --serve --replay run.timeline --expect simulated.timeline",
        "syncline watch --serve --replay watch.db",
        "syncline watch report watch.db --html incident.html",
    ),
)
def watch(
    context: typer.Context,
    serve: of.Serve = False,
    terminal: of.Terminal = False,
    interfaces: of.Interfaces = None,
    links: of.Links = None,
    cluster: of.Cluster = None,
    nics: of.Nics = None,
    host: of.Host = None,
    expect: of.Expect = None,
    rules: of.Rules = None,
    history: of.History = None,
    history_size: of.HistorySize = "256MiB",
    spans_socket: of.SpansSocket = None,
    spans_group: of.SpansGroup = "",
    spans_job: of.SpansJob = "",
    timelines: of.Timelines = None,
    inspector: of.Inspector = None,
    flight_recorder: of.Recorder = None,
    nccl_log: of.NcclLog = None,
    ras: of.Ras = None,
    netns: of.Netns = None,
    address: of.Address = "127.0.0.1",
    port: of.Port = 9750,
    token_file: of.TokenFile = None,
    tls_cert: of.TlsCert = None,
    tls_key: of.TlsKey = None,
    agent: of.Agents = None,
    prometheus: of.Prometheus = None,
    lab: of.LabName = None,
    replay: of.Replay = None,
    demo: of.DemoOption = False,
    speed: of.Speed = None,
    otel: of.Otel = None,
    alertmanager: of.Alertmanager = None,
    gpus: of.Gpus = None,
    price: of.Price = None,
    for_: of.For = None,
    every: of.Every = "250ms",
    root: of.Root = Path("/"),
    json: JsonOption = False,
) -> None:
    """Watch this host: links, collectives and steps, beside what was predicted.

    Reads interfaces four times a second and samples them every millisecond, other counters (InfiniBand, driver, TCP,
    GPUs) once a second; takes spans from the job, and raises alerts that say where, since when, why and what it costs.
    With --serve there is a page, with --terminal a screen (q quit, space pause, s sort, / filter, d dark or light);
    without, a line for each alert. Changes nothing on the host.
    """
    if context.invoked_subcommand is not None:
        return
    if demo:
        as_root_of_its_own()
    visit = visited(lab) if lab else None
    from syncline.cli.frames.run import until_stopped
    from syncline.describe import units
    from syncline.errors import UsageError
    from syncline.report.text.check.watch import frame_json, frame_lines
    from syncline.watch import feed as feeds
    from syncline.watch.serve.access import Access, read_token

    here = {
        "--interfaces": interfaces, "--links": links, "--cluster": cluster, "--nics": nics, "--host": host,
        "--netns": netns,
    }  # fmt: skip
    of_job = {
        "--spans-socket": spans_socket, "--spans-group": spans_group, "--spans-job": spans_job,
        "--timelines": timelines, "--inspector": inspector, "--flight-recorder": flight_recorder,
        "--nccl-log": nccl_log, "--ras": ras, "--otel": otel, "--gpus": gpus, "--price": price,
    }  # fmt: skip
    if prometheus:
        del here["--cluster"]  # it gives the hosts' NICs their names and switches
    others = {"--replay": replay, "--agent": agent, "--prometheus": prometheus, "--demo": demo, "--lab": lab}
    refuse_idle(others, here if lab else {**here, **of_job}, {} if lab else {"--expect": expect, "--rules": rules})
    if terminal:
        for_ = for_ or ("2s" if json else None)
        if not json and not (sys.stdout.isatty() and sys.stdin.isatty()):
            raise UsageError("--terminal needs a terminal.", hint="Leave it out, or add --json.")
    seconds = units.time(for_) if for_ is not None else None
    token = read_token(token_file) if token_file else ""
    access = Access(address, port, token, *(str(path) if path else "" for path in (tls_cert, tls_key)))
    door = access if serve or demo else None
    if demo:
        opened = feeds.demo_feed(lambda text: err().print(text, soft_wrap=True))
    elif replay:
        opened = feeds.replay_feed(replay, speed=speed, expect=expect, rules=rules, history=history, hold=serve)
    elif agent or prometheus:
        every_s = units.time(every)
        opened = feeds.fleet_feed(agent or (), prometheus, history=history, every_s=every_s, cluster=cluster)
    else:
        from syncline.watch.setup import DEFAULT_INTERFACES, WatchConfig
        from syncline.watch.spans.unix_socket import free_socket

        texts = {
            "host": host or (lab and "lab"), "links": links, "cluster": cluster, "expect": expect, "rules": rules,
            "history": history, "spans_socket": spans_socket or (free_socket() if root == Path("/") else ""),
            "timelines": timelines, "inspector": inspector, "flight_recorder": flight_recorder, "nccl_log": nccl_log,
            "ras": ras, "root": root,
        }  # fmt: skip
        config = WatchConfig(
            **{key: str(path) for key, path in texts.items() if path},
            interfaces=interfaces or DEFAULT_INTERFACES,
            spans_group=spans_group,
            spans_job=spans_job,
            netns=netns or (),
            nics=nics.split(",") if nics else (),
            history_bytes=units.size(history_size),
            tick_s=units.time(every),
            num_gpus=gpus,
            usd_per_gpu_hour=price,
        )
        opened = feeds.lab_feed(visit, config) if visit else feeds.host_feed(config)
    with opened as feed:
        expected = feed.prediction
        if terminal and not json:
            on_screen(feed)
            return
        frame = until_stopped(feed, door, seconds, json, otel=otel, alertmanager=alertmanager)
    emit(frame_json(frame, expected), json, frame_lines(frame, expected))


@app.command(
    epilog=examples("syncline watch report watch.db", "syncline watch report watch.db --number 3 --html i.html")
)
def report(
    history: Annotated[Path, typer.Argument(help="A history that --history wrote.")],
    number: Annotated[
        int | None, typer.Option(help="Which incident, by its number in the list; else the worst.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write the incident as a page to attach to a ticket.")] = None,
    json: JsonOption = False,
) -> None:
    """List the last day's incidents of a history, and show one in full."""
    from syncline.questions.within.incident import watch_report

    answer = watch_report(history, number=number)
    if html is not None:
        answer.page(html)
    tell(answer, json, html)


def on_screen(feed: Feed) -> None:
    """Show a feed at the terminal until its user quits."""
    import threading

    from syncline.watch.terminal import WatchScreen

    stop = threading.Event()
    worker = threading.Thread(target=feed.run, args=(stop,), name="syncline-watch", daemon=True)
    worker.start()
    try:
        WatchScreen(feed.hub, feed.title).run()
    finally:
        stop.set()
        worker.join(5.0)


def as_root_of_its_own() -> None:
    """Enter a user namespace where this user is not root, so that an agent may read the lab that it makes.

    Before anything else is imported: only a process of one thread can, and NumPy starts threads.
    """
    import os
    from contextlib import suppress

    if os.geteuid() != 0 and hasattr(os, "pidfd_open"):
        from syncline.lab.inside.init import Refusal, enter_user_namespace

        with suppress(Refusal):  # the demo then says that no lab can be made
            enter_user_namespace()


def visited(name: str) -> Visit:
    """Return a running lab, in whose user namespace this process then is where the user is not root."""
    import os

    from syncline.lab.join import enter_user
    from syncline.lab.registry import find_lab

    visit = find_lab(None if name == "any" else name)
    if os.geteuid() != 0:
        enter_user(visit)
    return visit


def refuse_idle(others: Mapping[str, Any], of_host: Mapping[str, Any], of_run: Mapping[str, Any]) -> None:
    """Refuse options that would say nothing: those of this host, and of one run, where something else is shown."""
    from syncline.errors import UsageError

    shown = [name for name, value in others.items() if value]
    if len(shown) > 1:
        raise UsageError(
            f"{shown[0]} and {shown[1]} cannot be combined: each shows something other than this host.",
            hint="Give one.",
        )
    idle = {**of_host, **(of_run if shown != ["--replay"] else {})} if shown else {}
    given = [name for name, value in idle.items() if value]
    if given:
        raise UsageError(f"{given[0]} is for watching this host; {shown[0]} shows something else.", hint="Drop one.")
