"""A preview beside `step` of its own job file, and what-ifs of how all-reduces run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from syncline import simulate
from syncline.errors import UnitError, UsageError
from syncline.fabric import load
from syncline.previewing.execute import execute
from syncline.previewing.exposed import collectives
from syncline.previewing.graph import step_graph
from syncline.previewing.price import Pricer
from syncline.previewing.record import read_capture
from syncline.questions.preview import PreviewAnswer, preview
from syncline.sim.step.machine import machine_from_fabric
from syncline.workload.graph import Op

EXAMPLES = Path(__file__).parents[2] / "examples" / "preview"
COMMAND = ["torchrun", "--nnodes", "2", "--nproc-per-node", "8", str(EXAMPLES / "ddp.py")]
CHANGES = ["algorithm=ring", "algorithm=tree", "network=free"]


@pytest.fixture(scope="module")
def seen() -> PreviewAnswer:
    return preview("h100-64-rail", COMMAND, captured=EXAMPLES / "captured", what_if=CHANGES, beside=True)


def test_parts_add_up_on_both_sides_and_what_differs_is_explained(seen: PreviewAnswer) -> None:
    found = seen.beside
    for whole, parts in ((found.step_time_s, found.time_s), (found.memory_bytes, found.held_bytes)):
        for side in (0, 1):
            assert sum(pair[side] for pair in parts.values()) == pytest.approx(whole[side], rel=0.06)
        apart = {n for n, (a, b) in parts.items() if abs(a - b) > 0.02 * whole[0]}
        assert apart == {why.split(":")[0] for why in found.why} & {*parts}
    assert any("list of layers" in why for why in found.why)  # it lacks what the script keeps
    text = str(seen)
    assert "beside `step` of the job" in text and all(why in text for why in found.why)


def test_nothing_is_said_of_step_unasked() -> None:
    bare = preview("h100-64-rail", COMMAND, captured=EXAMPLES / "captured", what_if=[])
    assert bare.report.beside_step is None and "beside `step`" not in str(bare)


def test_a_ring_of_two_hosts_waits_as_a_tree_does_and_a_tree_sends_more(seen: PreviewAnswer) -> None:
    """Two hosts are two hops either way; a tree's ranks pass the whole buffer, a ring's 15 of 16 parts of it."""
    ring, tree, free = seen.alternatives
    assert free.exposed_s == 0 < ring.exposed_s < tree.exposed_s < 1.2 * ring.exposed_s
    assert seen.exposed_s <= ring.exposed_s  # the better of both is not worse than one


THIN = (
    "hosts: 2\nhost: {gpu: H100-SXM5-80GB, gpus: 8, nics: 1, nic: ConnectX-7, link: 100GbE}\nnetwork: fat-tree 100GbE"
)


@pytest.mark.parametrize("what", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"])
def test_a_collective_takes_what_simulate_says_of_it(tmp_path: Path, what: str) -> None:
    """Two hosts of 16 GPUs, ports of 100 Gb/s: every bucket takes the one price of its bytes and ranks."""
    (tmp_path / "thin.yaml").write_text(THIN)
    fabric = load(tmp_path / "thin.yaml")
    machine, first = machine_from_fabric(fabric), read_capture(EXAMPLES / "captured" / "rank0.json")
    ops = tuple(
        op._replace(extra=[what, *op.extra[1:]]) if isinstance(op.extra, list) and op.kind == "collective" else op
        for op in first.ops
    )
    graph = step_graph([replace(first, ops=ops)], Pricer(machine))
    ran = execute(graph, fabric, machine, fabric.gpus.astype(np.int64))
    rows = [row for row in ran.rows((Op.COLLECTIVE,), 0) if graph.workload.names[graph.workload.label[row]] == what]
    sizes = [int(graph.workload.size_bytes[row]) for row in rows]
    (use,) = collectives(ran)
    assert use.calls == len(sizes) > 0 and use.limiting_link == "host-00/nic-0 -> leaf-00"
    said = [simulate(fabric, what.replace("_", ""), size, algorithm="nccl").time_s for size in sizes]
    assert use.total_s == pytest.approx(sum(said), rel=1e-4)


def test_one_rank_on_each_host_sends_through_its_port_and_no_nvlink() -> None:
    command = ["torchrun", "--nnodes", "16", "--nproc-per-node", "1", str(EXAMPLES / "ddp.py")]
    thin = preview("h100-64-rail", command, captured=EXAMPLES / "captured", what_if=[], beside=True)
    (use,) = thin.collectives
    assert use.total_s > 2 * 15 / 16 * use.size_bytes / 50e9
    assert use.limiting_link == "host-00/nic-0 -> leaf-00"
    assert thin.report.ranks_per_host == 1 and "`plan` fill one host" in thin.beside.why[0]


def test_another_cluster_has_the_same_ranks_and_hosts_of_its_own(seen: PreviewAnswer, tmp_path: Path) -> None:
    """16 ranks that filled two hosts of 8 GPUs fill the two of a cluster with ports of 100 Gb/s."""
    (tmp_path / "thin.yaml").write_text(THIN)
    change = [f"cluster={tmp_path / 'thin.yaml'}"]
    (other,) = preview("h100-64-rail", COMMAND, captured=EXAMPLES / "captured", what_if=change).alternatives
    there = preview(str(tmp_path / "thin.yaml"), COMMAND, captured=EXAMPLES / "captured", what_if=[])
    assert other.step_time_s == pytest.approx(there.step_time_s) and other.step_time_s > seen.step_time_s


@pytest.mark.parametrize("change", ["algorithm=best", "bucket=wide"])
def test_what_is_no_algorithm_or_size_is_refused(change: str) -> None:
    with pytest.raises((UsageError, UnitError), match=r"algorithm= takes ring or tree|cannot read size"):
        preview("h100-64-rail", COMMAND, captured=EXAMPLES / "captured", what_if=[change])
