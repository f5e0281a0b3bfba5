"""Where the frames of a watch come from: this host, other agents, a replay, or the demo."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from syncline.cli.shell.output import err

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator

    from syncline.describe.plain import JsonObject
    from syncline.lab.registry import Visit
    from syncline.watch.agent import Agent
    from syncline.watch.history import History as Past
    from syncline.watch.prediction import Prediction
    from syncline.watch.replay import Replay as Player
    from syncline.watch.serve.notes import NoteBook
    from syncline.watch.serve.server import Feed
    from syncline.watch.setup import Wish

    Run = Callable[[threading.Event], None]


@contextmanager
def demo() -> Iterator[tuple[Feed, Run]]:
    """Give a lab with a training and faults in it; where none can be made, the invented job, and say so."""
    from syncline.errors import SynclineError

    with ExitStack() as opened:
        try:
            from syncline.watch.demonstration.lab import LabDemo

            made = opened.enter_context(LabDemo())
        except SynclineError as error:
            err().print(f"no lab can be made here ({error.message}): the demo shows invented numbers", soft_wrap=True)
            feed, run = opened.enter_context(invented())
        else:
            feed, run = replace(of_agent(made.agent), title="demo (a lab on this machine)"), made.run
        yield feed, run


@contextmanager
def invented() -> Iterator[tuple[Feed, Run]]:
    """Give the invented job."""
    from syncline.watch.demonstration.invented import PLAN, Demo
    from syncline.watch.serve.server import Feed

    made = Demo()
    try:
        title, rates = "demo (invented numbers)", PLAN.link_rate_Bps
        yield Feed(made.hub, made.history, title, "live", _expected(PLAN), None, rates), made.run
    finally:
        made.close()


@contextmanager
def host(wish: Wish) -> Iterator[tuple[Feed, Run, Agent]]:
    """Give the agent of this host."""
    from syncline.watch.setup import make_agent

    agent = make_agent(wish)
    try:
        yield of_agent(agent), agent.run, agent
    finally:
        agent.close()


@contextmanager
def lab(visit: Visit, wish: Wish) -> Iterator[tuple[Feed, Run, Agent]]:
    """Give an agent that reads every host and switch of a running lab; its run ends with the lab."""
    import threading

    from syncline.watch.lab_scene import LabScene
    from syncline.watch.setup import make_lab_agent

    with visit, LabScene(visit) as scene:
        agent = make_lab_agent(wish, scene)

        def run(stop: threading.Event) -> None:
            threading.Thread(target=scene.follow, args=(stop,), name="syncline-lab-end", daemon=True).start()
            agent.run(stop)

        try:
            yield of_agent(agent), run, agent
        finally:
            agent.close()


def of_agent(agent: Agent) -> Feed:
    """Return what an agent of this host shows."""
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


def _expected(prediction: Prediction) -> JsonObject:
    num_gpus, price = prediction.num_gpus or 0, prediction.usd_per_gpu_hour or 0.0
    return {
        "source": prediction.source,
        "step_s": prediction.step_s,
        "exposed_s": prediction.exposed_s,
        "usd_per_hour": num_gpus * price or None,
    }


def replayed(
    replay: Path, speed: float, expect: Path | None, rules: Path | None, history: Path | None
) -> tuple[Player, Feed]:
    """Return the player of a timeline and what it shows."""
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


def fleet(
    agents: list[str] | None, prometheus: str | None, history: Path | None, every_s: float, cluster: str | None = None
) -> tuple[Feed, Run]:
    """Return what other agents, or a Prometheus server, show."""
    from syncline.watch.fleet.fleet import Fleet, FrameReader
    from syncline.watch.fleet.sources import AgentReader
    from syncline.watch.history import History as Past
    from syncline.watch.serve.metrics import fleet_registry
    from syncline.watch.serve.server import Feed

    readers: list[FrameReader] = [AgentReader.of(text) for text in agents or []]
    if prometheus:
        from syncline.fabric import load
        from syncline.watch.fleet.prometheus_source import PrometheusReader

        readers = [PrometheusReader(prometheus, load(cluster) if cluster else None)]
    past = Past(history) if history else None
    fleet = Fleet(readers, every_s=max(1.0, every_s), history=past)
    title = f"{len(readers)} agents" if agents else "Prometheus"
    return Feed(fleet.hub, past, title, registry=fleet_registry(fleet.hub)), fleet.run
