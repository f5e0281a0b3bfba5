"""The agent on an invented host: links, counters and alerts end to end, whatever comes, goes and steps."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.watch import trees
from tests.watch.scenes import come

from syncline.errors import SynclineError, WatchError
from syncline.fabric import load as load_fabric
from syncline.runtime.span_writer import SpanWriter
from syncline.timeline.collective import canonical
from syncline.watch.agent import Agent, AgentOptions
from syncline.watch.clock import Clock
from syncline.watch.history import History
from syncline.watch.link_map import LinkMap, map_of_fabric, read_link_map
from syncline.watch.links import KnownLink
from syncline.watch.prediction import Prediction
from syncline.watch.setup import WatchConfig, make_agent
from syncline.watch.sources.infiniband import InfinibandSource
from syncline.watch.sources.netdev import NetdevSource
from syncline.watch.sources.source import SourceTree
from syncline.watch.sources.tcp import TcpSource
from syncline.watch.spans.unix_socket import SocketSpans


class Host:
    """An invented host whose clock and counters the test moves."""

    def __init__(self, root: Path, **options: Any) -> None:
        self.root, self.now, self.wall = root, 50.0, 1.7e9
        self.bytes = {"eth0": [0, 0], "eth1": [0, 0]}
        for device in self.bytes:
            trees.interface(root, device, 100_000)
        clock = Clock(lambda: self.now, lambda: self.wall)
        self.tell()
        source = SourceTree(root)
        self.agent = Agent(
            AgentOptions("host-07", 0.25, **options),
            [NetdevSource(source)],
            [InfinibandSource(source), TcpSource(source)],
            clock=clock,
        )  # type: ignore[arg-type]

    def tell(self) -> None:
        trees.proc_net_dev(self.root, **{name: (rx, tx) for name, (rx, tx) in self.bytes.items()})

    def tick(self, seconds: float = 0.25, **use: float):
        for device, share in use.items():
            self.bytes[device][1] += int(12.5e9 * share * seconds)
        self.now += seconds
        self.wall += seconds
        self.tell()
        return self.agent.tick()


def test_links_have_their_rates_over_the_real_interval(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.tick()
    frame = host.tick(0.7, eth0=0.5)
    at = frame.table.index["host-07/eth0 tx"]
    assert frame.load.rate_Bps[at] == pytest.approx(0.5 * 12.5e9)
    assert frame.table.capacity_Bps[at] == 12.5e9
    assert frame.load.rate_Bps[frame.table.index["host-07/eth1 tx"]] == 0.0
    host.agent.close()


def test_an_interface_that_goes_is_down_then_forgotten_and_comes_back(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.tick(eth1=0.1)
    gone = host.bytes.pop("eth1")
    frame = host.tick()
    assert frame.load.up[frame.table.index["host-07/eth1 tx"]] == 0.0
    for _ in range(130):
        frame = host.tick()
    assert "host-07/eth1 tx" not in frame.table.index
    host.bytes["eth1"] = gone
    frame = host.tick()
    assert frame.load.up[frame.table.index["host-07/eth1 tx"]] == 1.0
    host.agent.close()


def test_a_counter_reset_gives_no_absurd_rate(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.tick(eth0=0.5)
    host.tick(eth0=0.5)
    host.bytes["eth0"] = [0, 1000]
    frame = host.tick()
    assert frame.load.rate_Bps[frame.table.index["host-07/eth0 tx"]] <= 1000 / 0.25
    assert frame.health["num_resets"] >= 1
    host.agent.close()


@pytest.mark.parametrize("jump", [86400.0, -86400.0])
def test_a_clock_step_changes_labels_and_nothing_else(tmp_path: Path, jump: float) -> None:
    host = Host(tmp_path)
    host.tick()
    host.wall += jump
    frame = host.tick(eth0=0.5)
    assert frame.interval_s == pytest.approx(0.25)
    assert frame.load.rate_Bps[frame.table.index["host-07/eth0 tx"]] == pytest.approx(0.5 * 12.5e9)
    assert frame.wall_s == pytest.approx(host.wall)
    assert frame.health["num_clock_steps"] == 1
    host.agent.close()


def test_infiniband_ports_are_links_and_their_fall_in_rate_is_an_alert(tmp_path: Path) -> None:
    trees.infiniband_port(tmp_path, "mlx5_0", port_xmit_data=0, port_rcv_data=0)
    host = Host(tmp_path)
    for k in range(8):
        trees.infiniband_port(tmp_path, "mlx5_0", port_xmit_data=k * 10**9, port_rcv_data=0)
        frame = host.tick(1.0)
    at = frame.table.index["host-07/mlx5_0:1 tx"]
    assert frame.load.rate_Bps[at] == pytest.approx(4e9)
    assert frame.table.capacity_Bps[at] == 50e9
    trees.infiniband_port(tmp_path, "mlx5_0", rate="100 Gb/sec (4X EDR)", port_xmit_data=8 * 10**9)
    for _ in range(4):
        frame = host.tick(1.0)
    assert ("link.degraded", "host-07/mlx5_0:1 tx") in {(a.rule, a.place) for a in frame.alerts}
    trees.infiniband_port(tmp_path, "mlx5_0", state="1: DOWN", port_xmit_data=8 * 10**9)
    for _ in range(3):
        frame = host.tick(1.0)
    assert ("link.down", "host-07/mlx5_0:1 tx") in {(a.rule, a.place) for a in frame.alerts}
    host.agent.close()


def test_spans_reach_the_frame_with_their_prediction(tmp_path: Path) -> None:
    planned = Prediction("plan", step_s=1.0, collectives_s={"all_reduce": 0.2})
    host = Host(tmp_path, prediction=planned)
    source = SocketSpans(tmp_path / "spans", host.agent.clock)
    host.agent._spans.append(source)
    writer = SpanWriter(tmp_path / "spans")
    for step in range(3):
        for rank in range(2):
            span = {
                "rank": rank,
                "name": "all_reduce",
                "start_s": host.now - 0.3,
                "end_s": host.now,
                "size_bytes": 1 << 20,
                "step": step,
            }
            writer.send([span])
        come(source, 2)
        frame = host.tick(1.0)
    (stat,) = frame.job.collectives
    assert (stat.key, stat.num, stat.predicted_s) == ("all-reduce/1MiB", 3, 0.2)
    assert stat.p50_s == pytest.approx(0.3)
    assert [s.step for s in frame.job.steps] == [0, 1]
    writer.close()
    host.agent.close()


def test_a_full_disk_does_not_stop_the_looks(tmp_path: Path) -> None:
    host = Host(tmp_path)
    history = History(tmp_path / "h.db")
    history._base.execute("PRAGMA max_page_count = 1")
    host.agent.history = history
    for _ in range(20):
        frame = host.tick(eth0=0.3)
    assert frame.seq == 20
    assert "full" in frame.health["history"]["problem"]
    host.agent.close()


def test_a_wish_becomes_an_agent_on_a_captured_tree(tmp_path: Path) -> None:
    trees.proc_net_dev(tmp_path, eth0=(1, 1), docker0=(1, 1))
    trees.snmp(tmp_path, 10, 0)
    agent = make_agent(WatchConfig(host="h", root=str(tmp_path), history=str(tmp_path / "h.db")))
    frame = agent.tick()
    assert set(frame.table.names) == {"h/eth0 tx", "h/eth0 rx"}
    agent.close()


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"interfaces": "("}, "is not a pattern"),
        ({"tick_s": 0.0}, "the time between two looks must be from 0.05 to 60 s, got 0.0 s"),
        ({"root": "/no/such/folder"}, "there is no such folder"),
        ({"expect": "/no/such/plan.json"}, "cannot read the prediction"),
        ({"links": "a", "cluster": "b"}, "both --links and --cluster"),
        ({"inspector": "/no/such/folder"}, "the folder of spans does not exist"),
        ({"cluster": "h100-64-rail", "host": "nobody"}, 'has no host "nobody"'),
    ],
)
def test_a_wish_that_cannot_be_is_one_clear_error(config: dict[str, object], words: str) -> None:
    with pytest.raises(SynclineError, match=words):
        make_agent(WatchConfig(**config))  # type: ignore[arg-type]


def test_names_and_rates_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "links.yaml").write_text("links:\n  eth0: {tx: host-00 -> leaf-0, capacity: 400Gbps, rail: 1}\n")
    wire = read_link_map(tmp_path / "links.yaml").wire("h", "eth0", "tx")
    assert wire == KnownLink("host-00 -> leaf-0", 50e9, 1, "host-00", "leaf-0")
    assert LinkMap().wire("h", "eth9", "rx").name == "h/eth9 rx"
    for text, words in (
        ("nothing: 1\n", "no links are given"), ("links: {eth0: {speed: 1}}\n", "Unknown key: speed"),
        ("links:\n  eth0: {capacity: fast}\n", "line 2"), ("links: {eth0: {rail: x}}\n", "rail 'x' is not a number"),
    ):  # fmt: skip
        (tmp_path / "bad.yaml").write_text(text)
        with pytest.raises(WatchError, match=words):
            read_link_map(tmp_path / "bad.yaml")


def test_names_and_rates_from_a_fabric() -> None:
    fabric = load_fabric("h100-64-rail")
    host = fabric.host_names[0]
    links = map_of_fabric(fabric, host, [f"eth{i}" for i in range(8)])
    wire = links.wire(host, "eth3", "tx")
    assert wire.capacity_Bps == 50e9
    assert wire.rail == 3
    assert wire.src == f"{host}/nic-3"
    assert links.wire(host, "eth3", "rx").dst == f"{host}/nic-3"
    with pytest.raises(WatchError, match="has 8 NICs"):
        map_of_fabric(fabric, host, ["eth0"])


def test_expectations_from_a_table_a_plan_and_a_timeline(tmp_path: Path) -> None:
    (tmp_path / "e.yaml").write_text("step: 1.2s\ncollectives: {AllReduce/16MiB: 3ms}\nlinks: {a -> b: 40Gbps}\n")
    table = Prediction.read(tmp_path / "e.yaml")
    planned_s, is_told = table.collective_s(canonical("AllReduce", 17 << 20))
    assert is_told
    assert (table.step_s, planned_s, table.link_rate_Bps["a -> b"]) == (1.2, 3e-3, 5e9)
    assert table.collective_s(canonical("AllReduce", 1 << 20)) == (3e-3 / 16, False)
    assert table.collective_s(canonical("Broadcast", 1 << 20)) == (None, False)
    (tmp_path / "bad.yaml").write_text("stpe: 1s\n")
    with pytest.raises(WatchError, match='no expectation is called "stpe"'):
        Prediction.read(tmp_path / "bad.yaml")
    (tmp_path / "plan.json").write_text(
        '{"format": "syncline plan 1", "job": "j", "cluster": "c", "num_gpus": 8, "cost": {"usd_per_gpu_hour": 2.5},'
        ' "predicted": {"step_time_s": 1.5, "exposed_comm_s": 0.2}}'
    )
    plan = Prediction.read(tmp_path / "plan.json")
    assert (plan.step_s, plan.exposed_s, plan.num_gpus, plan.usd_per_gpu_hour) == (1.5, 0.2, 8, 2.5)


def test_an_agent_in_a_real_host_reads_its_interfaces() -> None:
    agent = make_agent(WatchConfig(host="here", interfaces=".*"))
    agent.tick()
    frame = agent.tick()
    assert "here/lo tx" in frame.table.index
    assert np.isfinite(frame.load.rate_Bps[frame.table.index["here/lo tx"]])
    assert "lo" in frame.health["sampled"]
    agent.close()


def test_watch_needs_nothing_of_a_labs() -> None:
    code = "import sys; sys.modules['pyroute2'] = None; import syncline.watch.setup"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_looks_fall_into_every_phase_of_steps_that_take_as_long() -> None:
    from syncline.watch.agent import look_due

    due = [look_due(number) for number in range(400)]
    pauses = [after - before for before, after in pairwise(due)]
    assert 0.6 < min(pauses) < max(pauses) < 1.6
    for step in (0.5, 0.99, 1.0, 1.01, 2.0, 3.0):
        for first in range(0, 392, 8):  # two seconds of looks
            phases = sorted(at % step / step for at in due[first : first + 8])
            gaps = [b - a for a, b in pairwise([*phases, phases[0] + 1.0])]
            assert max(gaps) < 0.6
