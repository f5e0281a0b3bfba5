"""From the options of a user to an agent: which sources, which spans, which names and predictions."""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from syncline.errors import WatchError
from syncline.logs.follow import KernelFollower
from syncline.watch.agent import TICK_S, Agent, AgentOptions
from syncline.watch.clock import Clock
from syncline.watch.history import MAX_BYTES, History
from syncline.watch.lab_scene import LabScene
from syncline.watch.link_map import LinkMap, map_of_fabric, read_link_map
from syncline.watch.prediction import Prediction
from syncline.watch.recorded import Recorded, is_history
from syncline.watch.rules.thresholds import Thresholds, read_thresholds
from syncline.watch.sources.ethtool import EthtoolSource
from syncline.watch.sources.gpu import GpuSource
from syncline.watch.sources.host_load import HostLoad
from syncline.watch.sources.infiniband import InfinibandSource
from syncline.watch.sources.netdev import NetdevSource
from syncline.watch.sources.source import CounterSource, SourceTree
from syncline.watch.sources.tcp import TcpPathSource, TcpSource
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
class WatchConfig:
    """What a user may configure; the defaults watch this host."""

    host: str = field(default_factory=lambda: socket.gethostname().partition(".")[0])
    root: str = "/"
    interfaces: str = DEFAULT_INTERFACES
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


def make_agent(config: WatchConfig) -> Agent:
    """Return the agent a user configured; every option is checked before anything is opened."""
    _check(config)
    if config.nics and not config.cluster:
        raise WatchError("--nics says which interfaces are the NICs of a cluster.", hint="Give --cluster too.")
    root = SourceTree(config.root)
    if not root.path.is_dir():
        raise WatchError("there is no such folder.", where=config.root, hint="--root is a captured /sys and /proc.")
    options = _options(config, _links(config))
    interfaces = [NetdevSource(root, pattern=config.interfaces), *map(_namespace, config.netns)]
    sources: list[CounterSource] = [InfinibandSource(root), TcpSource(root)]
    if root.is_host:
        devices = [key.device for key in interfaces[0].read() if key.metric == "net.rx_bytes"]
        sources += [EthtoolSource(devices), GpuSource(), *_paths(config)]
    clock = Clock()
    spans, history, load = _spans(config, clock), _history(config), HostLoad(root)
    kernel = KernelFollower() if root.is_host else None
    if kernel is not None and kernel.problem:  # most containers may not read it
        kernel = None
    return Agent(options, interfaces, sources, spans, clock=clock, history=history, host_load=load, kernel=kernel)


def make_lab_agent(config: WatchConfig, scene: LabScene) -> Agent:
    """Return the agent of a running lab; what a plan or a timeline predicts is taken at the lab's scale."""
    _check(config)
    options = _options(config, LinkMap())
    if config.expect and not config.expect.lower().endswith((".yaml", ".yml")):
        options = replace(options, prediction=options.prediction.at_scale(scene.blueprint.scale))
    clock = Clock()
    return scene.agent(options, _spans(config, clock), clock=clock, history=_history(config))


def _check(config: WatchConfig) -> None:
    """Raise a WatchError for the first option that is not valid."""
    try:
        re.compile(config.interfaces)
    except re.error as error:
        problem = f'--interfaces "{config.interfaces}" is not a pattern: {error}.'
        raise WatchError(problem, hint='Write "eth[0-7]|ib.*".') from None
    if not 0.05 <= config.tick_s <= 60:
        raise WatchError(
            f"the time between two looks must be from 0.05 to 60 s, got {config.tick_s} s.", hint="Write --every 250ms."
        )
    if config.history and config.history_bytes < MIN_HISTORY_BYTES:
        raise WatchError(f"a history of {config.history_bytes} bytes is too small.", hint="Give it 1MiB or more.")
    for what, number in (("--gpus", config.num_gpus), ("--price", config.usd_per_gpu_hour)):
        if number is not None and not 0 < number < 1e9:
            raise WatchError(f"{what} must be positive, got {number}.")
    for folder in filter(None, (config.timelines, config.inspector, config.flight_recorder, config.nccl_log)):
        if not Path(folder).is_dir():
            raise WatchError("the folder of spans does not exist.", where=folder)


def _options(config: WatchConfig, links: LinkMap) -> AgentOptions:
    prediction = _expected(config.expect) if config.expect else Prediction()
    thresholds = read_thresholds(config.rules) if config.rules else Thresholds()
    num_gpus, usd = config.num_gpus or prediction.num_gpus, config.usd_per_gpu_hour or prediction.usd_per_gpu_hour
    prediction = replace(prediction, num_gpus=num_gpus, usd_per_gpu_hour=usd)
    return AgentOptions(config.host, config.tick_s, links, prediction, thresholds)


def _expected(path: str) -> Prediction:
    """Return what a plan, a timeline or a table predicts, or what links reached in an earlier run."""
    if not is_history(path):
        return Prediction.read(path)
    with closing(Recorded(path)) as recorded:
        return Prediction(f"{path}: an earlier run", link_reach_Bps=recorded.reached_Bps())


def _history(config: WatchConfig) -> History | None:
    return History(config.history, config.history_bytes) if config.history else None


def _links(config: WatchConfig) -> LinkMap:
    if config.links and config.cluster:
        raise WatchError("both --links and --cluster name the links.", hint="Give one of them.")
    if config.links:
        return read_link_map(config.links)
    if config.cluster:
        from syncline.fabric import load

        return map_of_fabric(load(config.cluster), config.host, list(config.nics))
    return LinkMap()


def _paths(config: WatchConfig) -> list[TcpPathSource]:
    """Return the connections of this host and of every namespace, where the kernel tells of them."""
    here = TcpPathSource()
    others = [
        TcpPathSource(path or f"/run/netns/{name}", name) for name, _, path in (t.partition("=") for t in config.netns)
    ]
    return [here, *others]


def _namespace(text: str) -> NetdevSource:
    """Return the source of a network namespace given as NAME or NAME=PATH."""
    name, _, path = text.partition("=")
    return NetdevSource(SourceTree(), netns=path or f"/run/netns/{name}", prefix=name)


def _spans(config: WatchConfig, clock: Clock) -> list[SpanSource]:
    found: list[SpanSource] = []
    for folder, make in (
        (config.timelines, TimelineSpans),
        (config.inspector, InspectorSpans),
        (config.flight_recorder, FlightRecorderSpans),
        (config.nccl_log, NcclLogSpans),
    ):
        if folder:
            found.append(make(folder, clock))
    if config.ras:
        found.append(RasSpans(config.ras))
    if config.spans_socket:
        found.append(SocketSpans(config.spans_socket, clock, config.spans_group, config.spans_job))
    return found
