"""What a watch shows, wherever it comes from: this host, a lab, other agents, Prometheus, a recorded run or the demo.

    with host_feed(WatchConfig()) as feed:
        feed.run(stop)              # until the event is set; frames go to feed.hub

Page, terminal, metrics, Alertmanager and the lines of the command all read the same feed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client import CollectorRegistry

from syncline.errors import SynclineError
from syncline.fabric import load
from syncline.lab.registry import Visit
from syncline.timeline import load as load_timeline
from syncline.watch.agent import Agent
from syncline.watch.fleet.door import AgentReader
from syncline.watch.fleet.fleet import Fleet, FrameReader
from syncline.watch.fleet.prometheus_source import PrometheusReader
from syncline.watch.foreign import admit
from syncline.watch.history import History
from syncline.watch.lab_scene import LabScene
from syncline.watch.prediction import Prediction
from syncline.watch.recorded import Recorded, is_history
from syncline.watch.replay import Replay
from syncline.watch.rules.thresholds import read_thresholds
from syncline.watch.serve.alertmanager import Inbox
from syncline.watch.serve.hub import Hub
from syncline.watch.serve.metrics import registry
from syncline.watch.serve.notes import Note, NoteBook
from syncline.watch.setup import WatchConfig, make_agent, make_lab_agent

Run = Callable[[threading.Event], object]


@dataclass
class Feed:
    """The hub with the newest frame, the past, what was predicted, and `run`, which makes frames until told to stop."""

    hub: Hub
    history: History | None = None
    title: str = ""
    mode: str = "live"
    prediction: Prediction = field(default_factory=Prediction)
    run: Run = threading.Event.wait
    registry: CollectorRegistry | None = None
    replay: Mapping[str, float] | None = None
    """For a run that is played: which moments of the page are which of the run."""
    agent: Agent | None = None
    notes: NoteBook = field(default_factory=NoteBook)
    inbox: Inbox = field(default_factory=Inbox)

    def __post_init__(self) -> None:
        self.hub.others = self.inbox.alerts


def agent_feed(agent: Agent, title: str = "", run: Run | None = None) -> Feed:
    """Return what an agent shows, with the notes that an earlier watch kept in its history."""
    notes = []
    for text in agent.history.notes() if agent.history is not None else ():
        with suppress(ValueError):  # what cannot be read is left out
            notes.append(admit(Note, text))
    return Feed(
        agent.hub, agent.history, title or agent.options.host, prediction=agent.options.prediction,
        run=run or agent.run, registry=registry(agent), agent=agent, notes=NoteBook(notes),
    )  # fmt: skip


@contextmanager
def host_feed(config: WatchConfig) -> Iterator[Feed]:
    """Give the agent of this host."""
    with closing(make_agent(config)) as agent:
        yield agent_feed(agent)


@contextmanager
def lab_feed(visit: Visit, config: WatchConfig) -> Iterator[Feed]:
    """Give an agent that reads every host and switch of a running lab; its run ends with the lab."""
    with visit, LabScene(visit) as scene, closing(make_lab_agent(config, scene)) as agent:

        def run(stop: threading.Event) -> None:
            threading.Thread(target=scene.follow, args=(stop,), name="syncline-lab-end", daemon=True).start()
            agent.run(stop)

        yield agent_feed(agent, run=run)


def played(play: Run, hold: bool) -> Run:
    """Return what plays once; with `hold` the last frame then stays until told to stop."""
    return lambda stop: (play(stop), stop.wait()) if hold else play(stop)


@contextmanager
def replay_feed(
    path: Path, *, speed: float | None = None, expect: Path | None = None, rules: Path | None = None,
    history: Path | None = None, hold: bool = True,
) -> Iterator[Feed]:  # fmt: skip
    """Give a timeline, or the last day of a history, played once."""
    if is_history(path):
        with closing(Recorded(path, speed=speed)) as recorded:
            run = played(recorded.play, hold)
            yield Feed(recorded.hub, recorded.history, recorded.title, "replay", run=run)
        return
    prediction = Prediction.read(expect) if expect else Prediction()
    player = Replay(
        load_timeline(path), speed=1.0 if speed is None else speed, prediction=prediction,
        history=History(history) if history else None,
        thresholds=read_thresholds(rules) if rules else None, title=path.name,
    )  # fmt: skip
    run = played(player.play, hold)
    with closing(player):
        yield Feed(player.hub, player.history, player.title, "replay", prediction, run, replay=player.pace())


@contextmanager
def fleet_feed(
    agents: Sequence[str] = (), prometheus: str | None = None, *, history: Path | None = None, every_s: float = 1.0,
    cluster: str | None = None,
) -> Iterator[Feed]:  # fmt: skip
    """Give what other agents (URL, or URL#TOKENFILE), or a Prometheus server, show."""
    readers: list[FrameReader] = [AgentReader.of(text) for text in agents]
    if prometheus:
        readers = [PrometheusReader(prometheus, load(cluster) if cluster else None)]
    fleet = Fleet(readers, every_s=max(1.0, every_s), history=History(history) if history else None)
    title = f"{len(readers)} agents" if agents else "Prometheus"
    yield Feed(fleet.hub, fleet.history, title, run=fleet.run, registry=registry(fleet.hub))


@contextmanager
def demo_feed(tell: Callable[[str], object]) -> Iterator[Feed]:
    """Give a lab with a training and faults in it; where none can be made, `tell` why and give the invented job."""
    from syncline.watch.demonstration.invented import PLAN, Demo
    from syncline.watch.demonstration.lab import LabDemo

    try:
        lab = LabDemo()
    except SynclineError as error:
        tell(f"no lab can be made here ({error.message}): the demo shows invented numbers")
    else:
        with lab:
            yield agent_feed(lab.agent, "demo (a lab on this machine)", lab.run)
        return
    with closing(Demo()) as made:
        yield Feed(made.hub, made.history, "demo (invented numbers)", prediction=PLAN, run=made.run)
