"""Patterns of messages of `syncline simulate`, packet by packet, and how far a packet run is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from syncline.cli.packet.options import (
    BackgroundOption,
    BufferOption,
    EcnOption,
    FailOption,
    LossOption,
    MtuOption,
    PacketTransport,
    PayloadOption,
    PfcOption,
    RecoveryOption,
    RerouteOption,
)
from syncline.cli.shell.output import JsonOption, progress, tell

if TYPE_CHECKING:
    from syncline.sim.packet import Progress


def traffic(
    context: typer.Context,
    cluster: Annotated[str, typer.Option("--cluster", "-c", metavar="FILE|PRESET", help="The cluster.")],
    size: Annotated[str, typer.Option(help="Bytes of each message.")] = "2MB",
    senders: Annotated[int, typer.Option(help="incast: how many send to one.")] = 16,
    transport: PacketTransport = "dcqcn",
    routing: Annotated[str, typer.Option(help="auto (as the cluster file has it), ecmp, adaptive, spray ...")] = "auto",
    loss: LossOption = None,
    buffer: BufferOption = None,
    payload: PayloadOption = None,
    mtu: MtuOption = None,
    recovery: RecoveryOption = None,
    pfc: PfcOption = None,
    ecn: EcnOption = None,
    background: BackgroundOption = None,
    fail: FailOption = None,
    reroute: RerouteOption = None,
    level: Annotated[str, typer.Option(help="packet; a pattern without a program has no other.")] = "packet",
    seed: Annotated[int, typer.Option(help="Seed of hashes, marks, losses, background and the permutation.")] = 0,
    trace: Annotated[Path | None, typer.Option(help="Write the timeline (.json for Perfetto, .parquet).")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page: queues, marks and rates over time.")] = None,
    json: JsonOption = False,
) -> None:
    """Simulate this pattern of messages between all NICs of a cluster, packet by packet."""
    from syncline.describe.files import check_writable
    from syncline.errors import UsageError
    from syncline.questions.simulated.packets import PacketQuestion
    from syncline.questions.simulated.traffic import traffic as ask
    from syncline.timeline import save

    pattern = str(context.info_name)
    if level != "packet":
        raise UsageError(f"{pattern} is simulated at packet level only, not at level {level}.",
                         hint="Leave --level out, or simulate a collective (allreduce, alltoall ...).")  # fmt: skip
    for path in (trace, html):
        if path is not None:
            check_writable(path)
    answer = ask(
        cluster, pattern, size, senders=senders, transport=transport, routing=routing, seed=seed, shown=shown,
        packets=PacketQuestion(loss, buffer, payload, mtu, recovery, pfc, ecn, background, fail, reroute),
    )  # fmt: skip
    if trace:
        save(answer.timeline, trace)
    if html:
        answer.page(html)
    tell(answer, json, trace, html)


@contextmanager
def shown(words: str) -> Iterator[Callable[[Progress], None]]:
    """Show how far a run is, and the time left, on stderr."""
    from syncline.describe import units

    with progress() as bar:
        task = bar.add_task(words, total=1.0)

        def report(now: Progress) -> None:
            left = f", {units.show_time(now.left_s)} left" if 0 < now.share < 1 else ""
            bar.update(task, completed=now.share, description=f"{words}: {now.events:,} events{left}")

        yield report
