"""Kernels timed on a real GPU: their prices, where the cache holds what they read, and on another GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from syncline.errors import DescriptionError, UsageError
from syncline.fabric import load
from syncline.previewing.launches import launches
from syncline.previewing.measured import Cache, read_kernel_times
from syncline.previewing.price import Pricer, executed_flops, other_gpu, pricer_of
from syncline.previewing.record import GpuStorage, KernelCall, read_capture
from syncline.previewing.signature import signature_key
from syncline.questions.preview import preview
from syncline.sim.step.machine import machine_from_fabric

EXAMPLES = Path(__file__).parents[2] / "examples" / "preview"
KEPT = EXAMPLES / "captured"
PHASES = ("forward", "backward", "optimizer")
SCRIPT = """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(12):
    loss = model(torch.ones(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
    loss.item()
"""


def _written(
    path: Path, kernels: list[dict[str, Any]], device: str = "NVIDIA H100 80GB HBM3", version: int = 3
) -> Path:
    head = {
        "syncline": f"kernel times {version}",
        "device": device,
        "memory_bytes": 80e9,
        "torch": "2.11.0",
    }
    path.write_text(json.dumps({**head, "cache_bytes": 50_000_000, "kernels": kernels}))
    return path


@pytest.fixture(scope="module")
def kernel() -> KernelCall:
    captured = read_capture(KEPT / "rank0.json")
    return max(captured.kernels, key=lambda each: each.flops)


def _row(kernel: KernelCall) -> dict[str, Any]:
    return {"key": signature_key(kernel.name, kernel.args, kernel.kwargs, kernel.tf32), "op": kernel.name}


def test_a_timed_kernel_keeps_its_time_on_its_own_gpu_and_is_scaled_on_another(
    tmp_path: Path, kernel: KernelCall
) -> None:
    times = read_kernel_times(
        _written(tmp_path / "t.json", [{**_row(kernel), "hot_s": 1e-3, "cold_s": 3e-3, "host_s": 1e-5}])
    )
    here = machine_from_fabric(load("h100-64-rail"))
    assert pricer_of(here, times).price(kernel, warm=0.5).seconds == pytest.approx(2e-3)
    other = other_gpu(here, "B200-SXM6-180GB")
    ratio = Pricer(other).price(kernel).seconds / Pricer(here).price(kernel).seconds
    assert ratio < 0.7
    assert pricer_of(other, times).price(kernel).seconds == pytest.approx(3e-3 * ratio, rel=1e-3)


def test_a_kernel_that_waited_for_its_host_costs_the_host(tmp_path: Path, kernel: KernelCall) -> None:
    row = {**_row(kernel), "hot_s": 4e-3, "cold_s": 4e-3, "host_s": 3.8e-3}
    pricer = pricer_of(
        machine_from_fabric(load("h100-64-rail")), read_kernel_times(_written(tmp_path / "t.json", [row]))
    )
    assert pricer.price(kernel).seconds == pricer.modelled(kernel).seconds
    assert pricer.host_s(kernel) == 3.8e-3


def test_the_cache_holds_what_was_touched_within_its_size() -> None:
    cache = Cache(100, tuple(GpuStorage(60, 0, 0, 0, "") for _ in range(3)))
    assert cache.warm([0], [1]) == 0.0  # never touched
    assert cache.warm([1], [2]) == 1.0  # just written
    assert cache.warm([0], []) == 0.0  # 120 bytes ago


def test_a_device_is_one_on_every_rank() -> None:
    one, two = ({"device": {"repr": f"cuda:{number}"}} for number in (0, 7))
    first, second = (signature_key("aten.zeros.default", [[4]], each, False) for each in (one, two))
    assert first == second


def test_what_was_not_timed_is_said_and_modelled(tmp_path: Path, kernel: KernelCall) -> None:
    failed = {"key": "x", "op": "aten.odd.default", "error": "RuntimeError: no"}
    path = _written(tmp_path / "t.json", [{**_row(kernel), "hot_s": 1e-3, "cold_s": 1e-3, "host_s": 1e-5}, failed])
    captured = read_capture(KEPT / "rank0.json")
    command = ["torchrun", "--nnodes", str(captured.world // 8), "--nproc-per-node", "8", str(EXAMPLES / "ddp.py")]
    answer = preview("h100-64-rail", command, captured=KEPT, measured=path, what_if=[])
    said: Any = answer.to_json()["measured"]
    assert said["kernels"] >= 1 and not said["scaled"] and "aten.odd.default" in said["not_timed"]
    assert "timed on NVIDIA H100 80GB HBM3" in str(answer)


def test_the_host_of_an_older_file_is_left_out_and_said(tmp_path: Path) -> None:
    new, old = (read_kernel_times(_written(tmp_path / f"{each}.json", [], version=each)) for each in (3, 2))
    assert not new.failed and not new.own and not old.own
    assert "usual costs are taken" in old.failed["the script's host"]
    with pytest.raises(DescriptionError, match="is not a file of kernel times"):
        read_kernel_times(_written(tmp_path / "4.json", [], version=4))


def _own(path: Path, *, forward_s: float, backward_s: float, optimizer_s: float) -> Path:
    data = json.loads(_written(path, []).read_text())
    phases = {"forward_s": forward_s, "backward_s": backward_s, "optimizer_s": optimizer_s}
    data["own"] = [{"rank": 0, **phases, "least_s": 0.5, "most_s": 2.0}]
    path.write_text(json.dumps(data))
    return path


def test_the_scripts_own_host_is_shared_among_its_launches(tmp_path: Path) -> None:
    """Phases keep their sums; an optimizer does all of its own before its first launch; a slow host is the step."""
    captured = read_capture(KEPT / "rank0.json")
    times = read_kernel_times(_own(tmp_path / "t.json", forward_s=0.3, backward_s=0.6, optimizer_s=0.1))
    shares = launches(captured, pricer_of(machine_from_fabric(load("h100-64-rail")), times), {})
    first, last = captured.steady[-1]
    rows = {p: [i for i in range(first, last) if i in shares and captured.ops[i].phase == p] for p in PHASES}
    assert [sum(shares[i] for i in rows[p]) for p in PHASES] == pytest.approx([0.3, 0.6, 0.1])
    assert len({round(shares[i], 9) for i in rows["backward"]}) == 1
    assert shares[rows["optimizer"][0]] == pytest.approx(0.1) and shares[rows["optimizer"][-1]] == 0.0
    command = ["torchrun", "--nnodes", str(captured.world // 8), "--nproc-per-node", "8", str(EXAMPLES / "ddp.py")]
    answer = preview("h100-64-rail", command, captured=KEPT, measured=tmp_path / "t.json", what_if=[])
    assert answer.step_time_s == pytest.approx(1.0, rel=0.02)
    # No narrower than what was measured, 0.5 to 2 s, nor than previewed steps that were.
    low, high = answer.interval_s
    assert low == pytest.approx(0.5, rel=0.02) and high >= 1.96
    assert high == pytest.approx(answer.spread.high_90, rel=0.02)
    assert "of the script itself on that machine" in str(answer)


def test_a_scripts_host_is_timed_by_phase_on_a_cpu(tmp_path: Path) -> None:
    world = 4
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    ranks = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world)}
    command = {"script": str(script), "module": False, "args": []}
    facts = {"rank": 0, "world": world, "command": command, "env": ranks | {"OMP_NUM_THREADS": "1"}}
    (tmp_path / "rank0.json").write_text(json.dumps({"facts": facts}))
    out = tmp_path / "own.json"
    asked = [sys.executable, "-m", "syncline.previewing.capture.own", str(tmp_path / "rank0.json"), str(out)]
    subprocess.run(asked, check=True, capture_output=True, timeout=300)
    found = json.loads(out.read_text())
    assert found["rank"] == 0 and found["steps"] == 6  # the later half of eleven backwards that follow one
    assert all(found[f"{phase}_s"] > 0 for phase in PHASES)
    assert found["least_s"] <= sum(found[f"{phase}_s"] for phase in PHASES) <= found["most_s"] + 1e-9


@pytest.mark.parametrize(
    "text", ["", "{}", '{"syncline": "kernel times 1"}', "[1]", '{"syncline": "kernel times 1", "kernels": [{}]}']
)
def test_a_broken_file_gets_a_clear_word(tmp_path: Path, text: str) -> None:
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(DescriptionError, match="is not a file of kernel times"):
        read_kernel_times(tmp_path / "t.json")


def test_an_unknown_gpu_cannot_be_scaled(tmp_path: Path) -> None:
    times = read_kernel_times(_written(tmp_path / "t.json", [], device="Abacus 9"))
    with pytest.raises(UsageError, match="Abacus 9"):
        pricer_of(machine_from_fabric(load("h100-64-rail")), times)


def test_attention_with_a_mask_is_not_causal() -> None:
    """The fourth switch of this kernel says whether it keeps its sums, the seventh whether it is causal."""
    ins = (((2, 8, 128, 64), "float32", 131072),) * 3

    def attention(*switches: object) -> KernelCall:
        name = "aten._scaled_dot_product_efficient_attention.default"
        return KernelCall(name, 1000, ins, ins[:1], [None] * 3 + list(switches), {}, False, False, False, "aten")

    assert executed_flops(attention(None, True, 0.0, False)) == 1000
    assert executed_flops(attention(None, True, 0.0, True)) == 500
    assert executed_flops(attention(None, True)) == 1000
