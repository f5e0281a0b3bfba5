"""A watch under way: its thread, its page, its exporters, and a line for each alert."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncline.cli.shell.output import err
from syncline.report.text.check.watch import clock

if TYPE_CHECKING:
    import threading

    from syncline.watch.feed import Feed
    from syncline.watch.frame import Frame
    from syncline.watch.serve.access import Access
    from syncline.watch.serve.server import Server


def until_stopped(
    feed: Feed,
    access: Access | None,
    seconds: float | None,
    json: bool,
    *,
    otel: str | None = None,
    alertmanager: str | None = None,
) -> Frame | None:
    """Run until the time is up, the user interrupts or the system says end; return the last frame.

    What ends the watch by itself is raised here, so that the command's exit status tells of it.
    """
    import contextlib
    import threading
    import time

    stop = threading.Event()
    failed: list[BaseException] = []

    def work() -> None:
        try:
            feed.run(stop)
        except BaseException as error:  # told by the main thread
            failed.append(error)

    with contextlib.ExitStack() as opened:
        if otel and feed.agent is not None:
            from syncline.watch.serve.otel import OtelExporter

            opened.callback(OtelExporter(feed.agent, otel).close)
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
    return feed.hub.frame


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

    from syncline.watch.incident import IncidentLog
    from syncline.watch.rules.hold import Change

    console = err()
    log = IncidentLog()
    while worker.is_alive() and not stop.is_set() and time.monotonic() < until:
        stop.wait(min(0.2, max(0.0, until - time.monotonic())))
        frame = feed.hub.frame
        if frame is None or quiet:
            continue
        for event in log.update(frame.alerts, frame.wall_s):
            a, moment = event.incident, clock(frame.wall_s)
            if event.change is Change.RAISED:
                console.print(f"{moment}  {a.severity.name:8}  {a.rule}  {a.place}: {a.summary}")
            else:
                console.print(f"{moment}  cleared   {a.rule}  {a.place}")
