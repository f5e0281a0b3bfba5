"""What is suggested of a script that shards over slow links: shards inside of hosts, and a codec, together."""

from __future__ import annotations

import pytest

import syncline
from syncline.questions.preview import PreviewAnswer

pytest.importorskip("torch", reason="previews run the script with torch (pip install syncline[torch])")
WIDTH, LAYERS = 2048, 4
SCRIPT = f"""
import torch, torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
dist.init_process_group("nccl")
torch.cuda.set_device(0)
model = nn.Sequential(*(nn.Linear({WIDTH}, {WIDTH}, bias=False) for _ in range({LAYERS}))).cuda()
for layer in model:
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    model(torch.ones(64, {WIDTH}, device="cuda")).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
CLUSTER = {"hosts": 2, "host": {"gpu": "H100", "gpus": 8, "nics": 1, "link": "25GbE"}, "network": "fat-tree 25GbE"}


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> PreviewAnswer:
    script = tmp_path_factory.mktemp("suggest") / "train.py"
    script.write_text(SCRIPT)
    command = ["torchrun", "--nnodes", "2", "--nproc-per-node", "8", str(script)]
    return syncline.preview(CLUSTER, command, suggest=True, what_if=["shard=host", "network=free"])


def test_the_best_is_both_together_and_the_order_is_by_what_is_saved(answer: PreviewAnswer) -> None:
    rows = answer.report.suggested
    best = rows[0]
    assert {each.partition("=")[0] for each in best.change.split(",")} >= {"shard", "codec"}
    assert [row.step_time_s for row in rows] == sorted(row.step_time_s for row in rows)
    assert 0 < best.step_time_s < min(row.step_time_s for row in rows if "," not in row.change)
    assert "lossy" in best.risk and best.change in str(answer)


def test_a_suggestion_is_what_the_same_what_if_gives_and_a_free_network_is_no_slower(answer: PreviewAnswer) -> None:
    inside, free = answer.report.what_if
    same = next(row for row in answer.report.suggested if row.change == "shard=host")
    assert same.step_time_s == pytest.approx(inside.step_time_s)
    assert free.step_time_s <= inside.step_time_s < answer.step_time_s


def test_a_replica_a_host_holds_more(answer: PreviewAnswer) -> None:
    same = next(row for row in answer.report.suggested if row.change == "shard=host")
    shards = 4 * LAYERS * WIDTH * WIDTH
    assert same.memory_bytes - answer.memory.peak_bytes == pytest.approx(2 * (shards / 8 - shards / 16), rel=0.6)
