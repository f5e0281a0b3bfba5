"""A script previewed: what it sends, computes and holds is what can be worked out by hand."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import syncline
from syncline.describe.plain import plain
from syncline.errors import UsageError
from syncline.previewing.child import PreviewError
from syncline.previewing.execute import covered, union
from syncline.previewing.place import family
from syncline.questions.preview import PreviewAnswer

pytest.importorskip("torch", reason="previews run the script with torch (pip install syncline[torch])")
EXAMPLES = Path(__file__).parents[2] / "examples" / "preview"
TORCHRUN = ["torchrun", "--nnodes", "2", "--nproc-per-node", "8"]


@pytest.fixture(scope="module")
def ddp() -> PreviewAnswer:
    return syncline.preview("h100-64-rail", [*TORCHRUN, str(EXAMPLES / "ddp.py")])


def test_gradients_are_sent_once_and_whole(ddp: PreviewAnswer) -> None:
    params = (1024 * 4096 + 4096) + (4096 * 1024 + 1024) + 2 * 1024 + (1024 * 10 + 10)
    (use,) = ddp.collectives
    assert (use.name, use.ranks, use.calls) == ("all_reduce", 16, 2)  # 1 MiB, then 25 MiB: the reducer's buckets
    assert use.size_bytes == 4 * params
    assert use.sent_bytes == pytest.approx(2 * 15 / 16 * 4 * params)


def test_operations_are_those_of_the_products(ddp: PreviewAnswer) -> None:
    forward = 2 * 8192 * (2 * 1024 * 4096 + 1024 * 10)
    first = 2 * 8192 * 1024 * 4096  # has no gradient of its input
    assert ddp.graph.flops == 3 * forward - first


def test_memory_names_what_holds_it(ddp: PreviewAnswer) -> None:
    held = {each.label: each for each in ddp.memory.holders}
    params = sum(map(np.prod, ddp.captures[0].facts["model"]["shapes"].values()))
    assert held["optimizer state"].size_bytes == pytest.approx(8 * params, rel=0.01)
    assert held["parameters"].size_bytes == pytest.approx(4 * params, rel=0.01)
    assert ddp.memory.fits
    assert held["activations and temporaries"].line.startswith("ddp.py:")


def test_the_first_bucket_hides_behind_the_rest_of_the_backward(ddp: PreviewAnswer) -> None:
    (use,) = ddp.collectives
    assert 0 < use.exposed_s < 0.95 * use.total_s


def test_what_if_moves_as_it_must(ddp: PreviewAnswer) -> None:
    free, faster, smaller = ddp.alternatives
    assert free.exposed_s == 0 < faster.exposed_s <= 1.01 * ddp.exposed_s  # NCCL chooses by its own table
    assert smaller.exposed_s < ddp.exposed_s
    assert free.step_time_s <= faster.step_time_s <= ddp.step_time_s  # the host launches for longer than all of it


def test_what_the_script_reads_is_listed(ddp: PreviewAnswer) -> None:
    (row,) = plain(ddp.to_json())["stand_ins"]
    assert (row["what"], row["value"]) == ("item()", "1.0")
    assert "ddp.py" in str(ddp)
    json.dumps(ddp.to_json())


def test_timeline_and_page(ddp: PreviewAnswer) -> None:
    assert ddp.timeline.makespan_s > 2 * ddp.step_time_s * 0.9
    assert "<svg" in ddp._repr_html_()


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            "import socket\nsocket.create_connection(('example.org', 443))\n",
            r"bad.py crashed: .*a preview resolves no host names",
        ),
        ("print('hello')\n", "ended before an optimizer stepped"),
        ("print('| no such option |\\n+---+')\nraise SystemExit(2)\n", "exited with 2"),
        ("raise RuntimeError('keys:\\n  missing a')\n", "crashed: RuntimeError: keys: missing a"),
    ],
)
def test_a_script_that_fails_gets_a_clear_word(tmp_path: Path, source: str, said: str) -> None:
    (tmp_path / "bad.py").write_text(source)
    with pytest.raises(PreviewError, match=said) as refused:
        syncline.preview("h100-64-rail", [sys.executable, str(tmp_path / "bad.py")])
    assert ("It last said: | no such option |" in str(refused.value)) == ("no such" in source)


def test_a_script_that_hangs_is_stopped(tmp_path: Path) -> None:
    (tmp_path / "hangs.py").write_text("import time\nprint('waiting', flush=True)\ntime.sleep(1000)\n")
    with pytest.raises(PreviewError, match=r"did not finish 3 training steps within 0\.5 s"):
        syncline.preview("h100-64-rail", [sys.executable, str(tmp_path / "hangs.py")], timeout="500ms")


def test_a_world_larger_than_the_cluster() -> None:
    with pytest.raises(UsageError, match=r"1,024 ranks, 8 a host, but h100-64-rail has 64 hosts with room for 8"):
        syncline.preview(
            "h100-64-rail", ["torchrun", "--nnodes", "128", "--nproc-per-node", "8", str(EXAMPLES / "ddp.py")]
        )


def test_families() -> None:
    assert family((0, 1), 6).tolist() == [[0, 1], [2, 3], [4, 5]]
    assert family((0, 1, 5), 8).tolist() == [[0, 1, 5]]


def test_intervals() -> None:
    busy = union(np.array([0.0, 5.0, 1.0]), np.array([2.0, 6.0, 3.0]))
    assert busy.tolist() == [[0.0, 3.0], [5.0, 6.0]]
    assert covered(busy, np.array([1.0, 4.0, 2.0]), np.array([2.0, 5.0, 5.5])).tolist() == [1.0, 0.0, 1.5]


CODED = """
import torch, torch.distributed as dist
import syncline.torch
from torch import nn
from torch.nn.attention.flex_attention import flex_attention
dist.init_process_group("nccl")
model = nn.parallel.DistributedDataParallel(nn.Linear(2048, 2048).cuda())
query = torch.randn(1, 4, 128, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
handle = syncline.torch.synchronize(model, codec="int8")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")  # it steps only where no gradient is infinite
for _ in range(5):
    scaler.scale(model(torch.randn(8, 2048, device="cuda")).sum()).backward()
    nn.functional.dropout(flex_attention(query, query, query), 0.1).sum().backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
print(handle.why())
"""


def test_a_codec_of_syncline_shrinks_what_is_sent_and_flex_attention_is_seen(tmp_path: Path) -> None:
    script = tmp_path / "coded.py"
    script.write_text(CODED)
    found = syncline.preview("h100-64-rail", ["torchrun", "--nproc-per-node", "8", str(script)], what_if=["codec=fp32"])
    (use,) = found.collectives
    plain = 2 * 7 / 8 * 4 * (2048 * 2048 + 2048)
    assert 0.25 * plain <= use.sent_bytes < 0.3 * plain
    assert found.alternatives[0].exposed_s > found.exposed_s
    assert any("int8" in note for note in found.captures[0].notes)
    products = 2 * 2 * 8 * 2048 * 2048  # forward and weight gradient: the input needs none
    attention = 3 * 2 * 2 * 4 * 128 * 128 * 64  # of queries, keys and values alike; nothing masks them
    assert found.graph.flops == products + attention
    masks = [kernel.outs[1][1] for kernel in found.captures[0].kernels if "native_dropout.default" in kernel.name]
    assert masks == [
        "bool"
    ]  # one kernel with a mask of a byte each, as on a GPU; a CPU keeps noise as wide as its input
