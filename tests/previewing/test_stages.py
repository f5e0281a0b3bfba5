"""A pipeline of two stages, the second begun after a step of the first: shapes agree, and their messages meet."""

from __future__ import annotations

from pathlib import Path

import pytest

import syncline
from syncline.previewing.execute import execute
from syncline.previewing.graph import step_graph
from syncline.previewing.price import Pricer
from syncline.previewing.ranks import Runner
from syncline.previewing.record import STEPS, Capture
from syncline.questions.preview import PreviewAnswer
from syncline.sim.step.machine import machine_from_fabric

pytest.importorskip("torch", reason="previews run the script with torch (pip install syncline[torch])")
WIDTH, LAYERS, MICROBATCHES, ROWS = 8192, 4, 4, 4096
SCRIPT = f"""
import copy
import threading
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

dist.init_process_group("nccl")
rank, device = dist.get_rank(), torch.device("cuda", 0)

votes = torch.tensor([3], device=device)  # what a script says itself, it can read again
assert votes.item() == 3 and (votes == 0).item() is False
dist.all_reduce(votes)
assert votes.item() == 6
assert [each.item() for each in torch.tensor([4, 5, 6], device=device).cpu()] == [4, 5, 6]
assert copy.deepcopy(torch.tensor(2.5)).item() == 2.5
deviation = torch.as_tensor((0.25, 0.5, 0.125))  # as torchvision normalises images
assert not (deviation == 0).any() and (deviation > 0.1).all() and deviation.tolist() == [0.25, 0.5, 0.125]
deviation.add_(1.0)
assert deviation.tolist() == [1.25, 1.5, 1.125]  # worked out
deviation *= torch.rand(3)
assert deviation.tolist() == [1.0, 1.0, 1.0]  # known to nobody: the stand-in
read = []  # as threads read a checkpoint's files: with values
reader = threading.Thread(target=lambda: read.append(torch.ones(3)))
reader.start()
reader.join()
assert read[0].to(device).is_cuda
start = torch.randint(1000, (1,))[0]  # known to nobody; a piece that begins there is as long as was asked
assert list(range(3000))[start : start + 1024] == list(range(1, 1025))
assert f"loss {{deviation.mean():.2f}}" == "loss 1.00"  # as scripts print one

model = nn.Sequential(*(nn.Linear({WIDTH}, {WIDTH}, bias=False) for _ in range({LAYERS}))).to(device).bfloat16()
stage = PipelineStage(model, rank, 2, device)
schedule = Schedule1F1B(stage, {MICROBATCHES}, loss_fn=nn.functional.mse_loss)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    x = torch.randn({MICROBATCHES * ROWS}, {WIDTH}, device=device, dtype=torch.bfloat16)
    schedule.step(x) if rank == 0 else schedule.step(target=x)
    found = torch.zeros(1, device=device)
    for parameter in model.parameters():
        found += torch.isfinite(parameter.grad.amax()).logical_not()
    assert found.item() == 0 and not torch.isinf(parameter.grad.amax()).item()
    found += parameter.grad.amax()
    assert found.item() == 1.0  # not known any more: the stand-in
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> PreviewAnswer:
    folder = tmp_path_factory.mktemp("stages")
    (folder / "train.py").write_text(SCRIPT)
    command = ["torchrun", "--nproc-per-node", "2", str(folder / "train.py")]
    return syncline.preview("h100-64-rail", command, what_if=["network=free"], keep=folder / "kept")


def messages(capture: Capture, kind: str) -> list[int]:
    first, last = capture.steady[-1]
    return [op.extra[2] for op in capture.ops[first:last] if op.kind == kind and isinstance(op.extra, list)]


def test_both_stages_ran_and_their_messages_meet(answer: PreviewAnswer) -> None:
    first, second = answer.captures
    assert (first.rank, second.rank) == (0, 1)
    expected = [2 * ROWS * WIDTH] * MICROBATCHES  # bfloat16 activations one way, their gradients back
    assert messages(first, "send") == messages(second, "recv") == expected
    assert messages(second, "send") == messages(first, "recv") == expected
    assert [len(c.laid) for c in answer.captures] == [2, 2]
    assert [len(c.steady) for c in answer.captures] == [2, 1]  # the second stage's only one stands for both


def test_a_step_that_is_laid_twice_is_as_two_that_were_run(answer: PreviewAnswer) -> None:
    machine = machine_from_fabric(answer.fabric)
    runner = Runner(machine.gpu, 600.0, 16 << 30)
    whole = runner._run(answer.launch, {0}, {}, None, follow=True, fewest=STEPS)
    assert [len(c.steady) for c in whole] == [2, 2]
    ran = execute(step_graph(whole, Pricer(machine)), answer.fabric, machine, answer.launch.devices(answer.fabric))
    assert ran.step_time_s == pytest.approx(answer.step_time_s, rel=1e-9)
    assert [len(part) for part in (ran.begin_s, ran.end_s)] == [len(answer.executed.begin_s)] * 2


def test_the_bubble_is_that_of_one_forward_and_backward(answer: PreviewAnswer) -> None:
    products = answer.graph.prices["product"]
    (free,) = answer.alternatives
    bubble = (MICROBATCHES + 1) / MICROBATCHES
    assert (
        bubble * products < free.step_time_s < 1.25 * bubble * products
    )  # the loss, checks, the optimizer and the loop beside it
    assert free.step_time_s < answer.step_time_s


def test_what_was_kept_is_the_same_answer(answer: PreviewAnswer) -> None:
    script = Path(answer.launch.script)
    again = syncline.preview(
        "h100-64-rail", ["torchrun", "--nproc-per-node", "2", str(script)], what_if=[], captured=script.parent / "kept"
    )
    assert again.step_time_s == answer.step_time_s
