"""Scripts without GPUs: operators on a CPU are captured, timed there and executed over gloo's messages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import syncline
from syncline.errors import UsageError
from syncline.fabric import load
from syncline.previewing.cpus import call_s, host_costs, sent_bytes
from syncline.questions.preview import PreviewAnswer

torch = pytest.importorskip("torch", reason="previews run the script with torch (pip install syncline[torch])")
CLUSTER = Path(__file__).parents[2] / "examples" / "lab-flat.yaml"
WIDTH, ROWS, RANKS = 256, 64, 4
PHASES = ("forward", "backward", "optimizer")
SCRIPT = f"""
import torch, torch.distributed as dist
from torch import nn
dist.init_process_group("gloo")
assert not torch.cuda.is_available()
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear({WIDTH}, {WIDTH}), nn.Linear({WIDTH}, {WIDTH})))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(30):
    model(torch.ones({ROWS}, {WIDTH})).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
GRADIENT_BYTES = 4 * 2 * (WIDTH * WIDTH + WIDTH)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("cpu")
    (made / "train.py").write_text(SCRIPT)
    return made


def command(folder: Path) -> list[str]:
    return ["OMP_NUM_THREADS=1", "torchrun", "--nnodes", str(RANKS), str(folder / "train.py")]


@pytest.fixture(scope="module")
def answer(folder: Path) -> PreviewAnswer:
    changes = ["network=free", "network=0.001x"]
    return syncline.preview(CLUSTER, command(folder), cpu=True, measure=True, keep=folder / "kept", what_if=changes)


def test_operators_on_a_cpu_are_captured_and_timed_there(answer: PreviewAnswer) -> None:
    first, graph = answer.captures[0], answer.graph
    assert first.on_cpu and answer.times is not None and answer.times.on_cpu
    assert graph.flops == 6 * 2 * ROWS * WIDTH * WIDTH - 2 * ROWS * WIDTH * WIDTH  # no gradient of the batch
    assert graph.timed == answer.operations > 10
    assert "1 thread" in str(answer)
    (use,) = answer.collectives
    assert (use.name, use.size_bytes, use.sent_bytes) == ("all_reduce", GRADIENT_BYTES, 1.5 * GRADIENT_BYTES)


def test_without_a_network_a_step_is_the_scripts_own_and_a_slow_one_adds_its_bytes(answer: PreviewAnswer) -> None:
    assert answer.times is not None
    own = answer.times.own[0]
    free, slow = (each.step_time_s for each in answer.alternatives)
    assert free == pytest.approx(own.forward_s + own.backward_s + own.optimizer_s, rel=1e-6)
    wire_s = 1.5 * GRADIENT_BYTES / (0.985 * 125e6 * 0.001)  # of 1 Gb/s a thousandth
    assert slow == pytest.approx(free + wire_s, rel=0.01)
    low, high = answer.interval_s
    assert low < answer.step_time_s < high


def test_ranks_that_meet_wait_for_the_slowest(answer: PreviewAnswer, folder: Path) -> None:
    kept = folder / "kept"
    data = json.loads((kept / "kernel-times.json").read_text())
    (own,) = data["own"]
    steps = []
    for share in (0.0, 0.1, 0.4):
        own["jitter_s"] = share * (own["forward_s"] + own["backward_s"] + own["optimizer_s"])
        (folder / "jitter.json").write_text(json.dumps(data))
        told = syncline.preview(
            CLUSTER, command(folder), captured=kept, measured=folder / "jitter.json", cpu=True, what_if=["network=free"]
        )
        assert told.alternatives[0].step_time_s == pytest.approx(sum(own[f"{p}_s"] for p in PHASES), rel=1e-6)
        steps.append(told.step_time_s)
    assert 0 < steps[1] - steps[0] == pytest.approx((steps[2] - steps[0]) / 4, rel=1e-6)


def test_a_codec_sends_less_and_is_paid_for_on_the_processor(answer: PreviewAnswer, folder: Path) -> None:
    kept, times = folder / "kept", folder / "kept" / "kernel-times.json"
    changes = ["codec=int8", "network=0.001x", "network=0.001x,codec=int8", "network=free"]
    rows = syncline.preview(CLUSTER, command(folder), captured=kept, measured=times, cpu=True, what_if=changes)
    near, slow, both, free = (row.step_time_s for row in rows.alternatives)
    assert free <= near and both < 0.5 * slow


def test_what_cannot_be_said_of_cpus_is_refused(answer: PreviewAnswer, folder: Path) -> None:
    with pytest.raises(UsageError, match="is not modelled"):
        syncline.preview(CLUSTER, command(folder), cpu=True)
    for change in ("gpu=A100-SXM4-80GB", "compiled=yes"):
        with pytest.raises(UsageError, match="not known of a script on CPUs"):
            syncline.preview(CLUSTER, command(folder), cpu=True, measure=True, what_if=[change])
    with pytest.raises(UsageError, match="describes training on GPUs"):
        syncline.preview(CLUSTER, command(folder), cpu=True, measure=True, beside=True)
    kept, times = folder / "kept", folder / "kept" / "kernel-times.json"
    with pytest.raises(UsageError, match="was captured on CPUs"):
        syncline.preview(CLUSTER, command(folder), captured=kept)
    gpu = json.loads(times.read_text())
    del gpu["cpu"]
    (folder / "gpu.json").write_text(json.dumps(gpu))
    with pytest.raises(UsageError, match="Times of a CPU go with `cpu`"):
        syncline.preview(CLUSTER, command(folder), captured=kept, measured=folder / "gpu.json", cpu=True)


def test_a_calibrated_cluster_says_what_calls_cost(tmp_path: Path) -> None:
    costs = "latency_s: 1e-3, post_s: 2e-3, add_s_per_byte: 0, start_s: 5e-3, efficiency: 0.9"
    known = f"calibration: {{{costs}, ranks: 4, median_error: 0.01, worst_error: 0.02}}"
    (tmp_path / "c.yaml").write_text(f"{CLUSTER.read_text()}\n{known}\n")
    found = host_costs(load(tmp_path / "c.yaml"))
    assert call_s(found, "all_reduce", 4) == pytest.approx(5e-3 + 6 * 3e-3) and found.efficiency == 0.9
    assert call_s(host_costs(load(CLUSTER)), "all_gather", 4) == pytest.approx(5e-4 + 3 * 4e-4)


def test_a_reduce_scatter_of_gloo_sends_what_an_all_reduce_does() -> None:
    assert (
        sent_bytes("reduce_scatter", 1e6, 4) == sent_bytes("all_reduce", 1e6, 4) == 2 * sent_bytes("all_gather", 1e6, 4)
    )
