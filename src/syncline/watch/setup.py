"""From what a user asks to a running agent: which sources, which spans, which names and expectations."""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from syncline.errors import WatchError
from syncline.watch.agent import TICK_S, Agent, AgentOptions
from syncline.watch.clock import Clock
from syncline.watch.history import MAX_BYTES, History
from syncline.watch.lab_scene import LabScene
from syncline.watch.link_map import LinkMap, map_of_fabric, read_link_map
from syncline.watch.prediction import Prediction
from syncline.watch.rules.thresholds import Thresholds, read_thresholds
from syncline.watch.sources.ethtool import EthtoolSource
from syncline.watch.sources.gpu import GpuSource
from syncline.watch.sources.host_load import HostLoad
from syncline.watch.sources.infiniband import InfinibandSource
from syncline.watch.sources.netdev import NetdevSource
from syncline.watch.sources.source import CounterSource, SourceTree
from syncline.watch.sources.tcp import TcpSource
from syncline.watch.sources.tcp_paths import TcpPathSource
from syncline.watch.spans.event import SpanSource
from syncline.watch.spans.flight_recorder import FlightRecorderSpans
from syncline.watch.spans.nccl_inspector import InspectorSpans
from syncline.watch.spans.nccl_log import NcclLogSpans
from syncline.watch.spans.nccl_ras import RasSpans
from syncline.watch.spans.timelines import TimelineSpans
from syncline.watch.spans.unix_socket import SocketSpans

DEFAULT_INTERFACES = r"(?!lo$|docker|veth|virbr|br-|ifb|dummy|tun|tap).*"


MIN_HISTORY_BYTES = 1 << 20


@dataclass(frozen=True)
class Wish:
    """What a user may ask for; everything has a default that watches this host."""

    host: str = field(default_factory=lambda: socket.gethostname().partition(".")[0])
    root: str = "/"
    interfaces: str = DEFAULT_INTERFACES
    bursts: str = ""
    netns: Sequence[str] = ()
    links: str = ""
    cluster: str = ""
    nics: Sequence[str] = ()
    expect: str = ""
    rules: str = ""
    history: str = ""
    history_bytes: int = MAX_BYTES
    spans_socket: str = ""
    spans_group: str = ""
    spans_job: str = ""
    timelines: str = ""
    inspector: str = ""
    flight_recorder: str = ""
    nccl_log: str = ""
    ras: str = ""
    tick_s: float = TICK_S
    num_gpus: int | None = None
    usd_per_gpu_hour: float | None = None


def make_agent(wish: Wish) -> Agent:
    """Return the agent a user asked for; nothing is opened before every word of the wish has been understood."""
    _check(wish)
    if wish.nics and not wish.cluster:
        raise WatchError("--nics says which interfaces are the NICs of a cluster.", hint="Give --cluster too.")
    root = SourceTree(wish.root)
    if not root.path.is_dir():
        raise WatchError("there is no such folder.", where=wish.root, hint="--root is a captured /sys and /proc.")
    options = _options(wish, _links(wish))
    interfaces = [NetdevSource(root, pattern=wish.interfaces), *map(_namespace, wish.netns)]
    sources: list[CounterSource] = [InfinibandSource(root), TcpSource(root)]
    if root.is_host:
        devices = [key.device for key in interfaces[0].read() if key.metric == "net.rx_bytes"]
        sources += [EthtoolSource(devices), GpuSource(), *_paths(wish)]
    clock = Clock()
    return Agent(
        options, interfaces, sources, _spans(wish, clock), clock=clock, history=_history(wish), host_load=HostLoad(root)
    )


def make_lab_agent(wish: Wish, scene: LabScene) -> Agent:
    """Return the agent of a running lab; what a plan or a timeline predicts is taken at the lab's scale."""
    _check(wish)
    options = _options(wish, LinkMap())
    if wish.expect and not wish.expect.lower().endswith((".yaml", ".yml")):
        options = replace(options, prediction=options.prediction.at_scale(scene.blueprint.scale))
    clock = Clock()
    return scene.agent(options, _spans(wish, clock), clock=clock, history=_history(wish))


def _check(wish: Wish) -> None:
    """Raise where something of the wish cannot be."""
    for what, pattern in (("--interfaces", wish.interfaces), ("--bursts", wish.bursts)):
        try:
            re.compile(pattern)
        except re.error as error:
            raise WatchError(f'{what} "{pattern}" is not a pattern: {error}.', hint='Write "eth[0-7]|ib.*".') from None
    if not 0.05 <= wish.tick_s <= 60:
        raise WatchError(
            f"the time between two looks must be from 0.05 to 60 s, got {wish.tick_s} s.", hint="Write --every 250ms."
        )
    if wish.history and wish.history_bytes < MIN_HISTORY_BYTES:
        raise WatchError(f"a history of {wish.history_bytes} bytes is too small.", hint="Give it 1MiB or more.")
    for what, number in (("--gpus", wish.num_gpus), ("--price", wish.usd_per_gpu_hour)):
        if number is not None and not 0 < number < 1e9:
            raise WatchError(f"{what} must be positive, got {number}.")
    for folder in filter(None, (wish.timelines, wish.inspector, wish.flight_recorder, wish.nccl_log)):
        if not Path(folder).is_dir():
            raise WatchError("there is no such folder to read spans from.", where=folder)


def _options(wish: Wish, links: LinkMap) -> AgentOptions:
    prediction = Prediction.read(wish.expect) if wish.expect else Prediction()
    thresholds = read_thresholds(wish.rules) if wish.rules else Thresholds()
    return AgentOptions(
        wish.host, wish.tick_s, wish.bursts, links, prediction, thresholds, wish.num_gpus, wish.usd_per_gpu_hour
    )


def _history(wish: Wish) -> History | None:
    return History(wish.history, wish.history_bytes) if wish.history else None


def _links(wish: Wish) -> LinkMap:
    if wish.links and wish.cluster:
        raise WatchError("both --links and --cluster name the links.", hint="Give one of them.")
    if wish.links:
        return read_link_map(wish.links)
    if wish.cluster:
        from syncline.fabric import load

        return map_of_fabric(load(wish.cluster), wish.host, list(wish.nics))
    return LinkMap()


def _paths(wish: Wish) -> list[TcpPathSource]:
    """Return the connections of this host and of every namespace, where the kernel tells of them."""
    here = TcpPathSource()
    others = [
        TcpPathSource(path or f"/run/netns/{name}", name) for name, _, path in (t.partition("=") for t in wish.netns)
    ]
    return [here, *others]


def _namespace(text: str) -> NetdevSource:
    """Return the source of a network namespace given as NAME or NAME=PATH."""
    name, _, path = text.partition("=")
    return NetdevSource(SourceTree(), netns=path or f"/run/netns/{name}", prefix=name)


def _spans(wish: Wish, clock: Clock) -> list[SpanSource]:
    found: list[SpanSource] = []
    for folder, make in (
        (wish.timelines, TimelineSpans),
        (wish.inspector, InspectorSpans),
        (wish.flight_recorder, FlightRecorderSpans),
        (wish.nccl_log, NcclLogSpans),
    ):
        if folder:
            found.append(make(folder, clock))
    if wish.ras:
        found.append(RasSpans(wish.ras))
    if wish.spans_socket:
        found.append(SocketSpans(wish.spans_socket, clock, wish.spans_group, wish.spans_job))
    return found
