"""A running lab as an agent reads it: every link once, switches too, at the lab's scale."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from syncline.errors import LabError, WatchError
from syncline.fabric import load
from syncline.lab import Lab
from syncline.lab.registry import find_lab
from syncline.watch.counter import Growth
from syncline.watch.lab_scene import LabScene
from syncline.watch.link_map import LinkMap
from syncline.watch.link_reader import LinkReader
from syncline.watch.links import KnownLink
from syncline.watch.metric import Key
from syncline.watch.prediction import Prediction
from syncline.watch.setup import WatchConfig, make_lab_agent

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def test_a_link_whose_both_ends_are_read_is_one_row_with_the_loss_of_either() -> None:
    wire = KnownLink("a -> b", 100.0, 0, "a", "b")
    back = KnownLink("b -> a", 100.0, 0, "b", "a")
    wires = {("a/eth0", "tx"): wire, ("b/p0", "rx"): wire, ("b/p0", "tx"): back, ("a/eth0", "rx"): back}
    reader = LinkReader("lab", LinkMap(wires))
    reading = {Key(f"net.{way}_bytes", device): 1.0 for way in ("rx", "tx") for device in ("a/eth0", "b/p0")}
    grown = {Key("net.tx_bytes", "a/eth0"): Growth(70, 1.0), Key("net.rx_bytes", "b/p0"): Growth(70, 1.0)}
    paths = [Key("tcp.path_retransmitted", device, "10.0.0.2") for device in ("c/eth0", "d/eth0")]
    reader.update({**reading, **dict.fromkeys(paths, 0.0)}, grown, {}, 0.0, {"10.0.0.2": "b/p0"})
    load_now = reader.update({**reading, **dict.fromkeys(paths, 9.0)}, grown, {}, 1.0, {"10.0.0.2": "b/p0"})
    assert reader.table.names == ("a -> b", "b -> a")
    assert load_now.rate_Bps.tolist()[0] == 70.0
    assert load_now.drops_per_s.tolist() == [18.0, 0.0]  # blamed on what arrives at b, which is a -> b


def test_what_was_predicted_is_slower_by_the_scale_of_the_lab() -> None:
    planned = Prediction("plan", 1.0, 0.2, {"all-reduce@data/1MiB": 0.1}, {"*": 100.0}, 4, 2.0).at_scale(0.1)
    assert (planned.step_s, planned.exposed_s, planned.rate_of("x")) == (10.0, 2.0, 10.0)
    assert planned.collectives_s == {"all-reduce@data/1MiB": 1.0}
    assert planned.source == "plan, at 0.1 of its rates"
    assert Prediction().at_scale(0.1).step_s is None


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    try:
        with Lab(load(EXAMPLES / "lab-leaf-spine.yaml"), hosts=["host-00", "host-04"]) as made:
            yield made
    except LabError as error:
        pytest.skip(str(error))


def test_a_lab_is_read_whole_at_its_scale(lab: Lab, tmp_path: Path) -> None:
    plan = {
        "format": "syncline plan 1", "job": "j", "cluster": "c", "num_gpus": 2, "collectives": [],
        "predicted": {"step_time_s": 1.0, "exposed_comm_s": 0.1}, "links": {"leaf-* -> spine-*": 80.0},
    }  # fmt: skip
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    try:
        with find_lab(lab.name) as visit, LabScene(visit) as scene:
            agent = make_lab_agent(WatchConfig(host="lab", expect=str(tmp_path / "plan.json")), scene)
            frame, until_s = agent.tick(), time.monotonic() + 60
            while not frame.load.up.all() and time.monotonic() < until_s:  # a cable just laid takes a moment
                time.sleep(0.1)
                frame = agent.tick()
            agent.close()
    except WatchError as error:
        pytest.skip(f"the lab's namespaces cannot be read: {error}")
    names = set(frame.table.names)
    assert len(names) == len(frame.table) == 2 * len(lab.blueprint.cables)
    assert {"host-00/nic-0 -> leaf-00", "spine-01 -> leaf-01"} <= names
    assert frame.load.up.tolist() == [1.0] * len(frame.table)
    assert not np.isnan(frame.table.capacity_Bps).any()
    assert agent.options.prediction.rate_of("leaf-00 -> spine-01") == pytest.approx(80.0 * lab.blueprint.scale)
    assert agent.options.prediction.step_s == pytest.approx(1.0 / lab.blueprint.scale)
