"""What public scripts do: devices as numbers, the first FSDP, meshes that FSDP2 makes itself, recurrent layers."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

import syncline
from syncline.previewing.child import PreviewError
from syncline.previewing.price import executed_flops
from syncline.questions.preview import PreviewAnswer

pytest.importorskip("torch", reason="previews run the script with torch (pip install syncline[torch])")
HEAD = """
import os, torch, torch.distributed as dist
from torch import nn
dist.init_process_group("nccl")
here = int(os.environ["LOCAL_RANK"])
torch.accelerator.set_device_index(here)
model = nn.Sequential(nn.Linear(64, 256), nn.Linear(256, 64))
"""
LOOP = """
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(5):
    model(torch.randn(8, 64).to(here)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
OLD = """
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
model = FSDP(model, device_id=torch.cuda.current_device())
"""
NEW = """
from torch.distributed.fsdp import fully_shard
model = fully_shard(model.to(here))
"""
MESH = """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
model = fully_shard(model.to(here), mesh=init_device_mesh("cuda", (8,)))
"""
DDP = """
model = nn.parallel.DistributedDataParallel(model.to(here), device_ids=[here])
"""
PARAMETERS = 64 * 256 + 256 + 256 * 64 + 64


def previewed(folder: Path, source: str) -> PreviewAnswer:
    script = folder / "train.py"
    script.write_text(source)
    return syncline.preview("h100-64-rail", ["torchrun", "--nproc-per-node", "8", str(script)], what_if=[])


@pytest.mark.parametrize("wrap", [OLD, NEW])
def test_both_kinds_of_fsdp_gather_and_scatter_every_parameter(tmp_path: Path, wrap: str) -> None:
    answer = previewed(tmp_path, HEAD + wrap + LOOP)
    sizes = {use.name: use.size_bytes for use in answer.collectives}
    assert sizes == {"all_gather": 4 * PARAMETERS, "reduce_scatter": 4 * PARAMETERS}
    assert answer.captures[0].facts["model"]["parameters"] == PARAMETERS


def test_gradients_of_fsdp_are_clipped_with_one_sum(tmp_path: Path) -> None:
    """As torch does with two ranks of gloo, counted by its own CommDebugMode; a sum for each parameter before."""
    clipped = LOOP.replace(
        "    optimizer.step", "    nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n    optimizer.step"
    )
    sums = [use for use in previewed(tmp_path, HEAD + NEW + clipped).collectives if use.name == "all_reduce"]
    assert [(use.calls, use.size_bytes) for use in sums] == [(1, 16)]  # four norms


def test_a_mesh_may_start_the_world(tmp_path: Path) -> None:
    answer = previewed(tmp_path, HEAD.replace('dist.init_process_group("nccl")', "") + MESH + LOOP)
    sizes = {use.name: use.size_bytes for use in answer.collectives}
    assert sizes == {"all_gather": 4 * PARAMETERS, "reduce_scatter": 4 * PARAMETERS}


def test_a_device_may_be_a_number(tmp_path: Path) -> None:
    (use,) = previewed(tmp_path, HEAD + DDP + LOOP).collectives
    assert (use.name, use.size_bytes) == ("all_reduce", 4 * PARAMETERS)


EVALUATES = """
with torch.no_grad():
    model(torch.randn(8, 64).to(here))
"""
LOADS = """
class Kept(torch.utils.data.DataLoader):
    names = tuple(inspect.signature(torch.utils.data.DataLoader.__init__).parameters)
assert Kept.names[:2] == ("self", "dataset"), Kept.names  # as Lightning reads it
"""


def test_a_model_that_is_evaluated_first_is_described(tmp_path: Path) -> None:
    answer = previewed(tmp_path, "import inspect" + HEAD + DDP + EVALUATES + LOADS + LOOP)
    assert answer.captures[0].facts["model"]["parameters"] == PARAMETERS
    assert {"0", "1"} <= {answer.captures[0].words[op.module] for op in answer.captures[0].ops}


def test_layers_that_are_copies_are_seen(tmp_path: Path) -> None:
    copies = HEAD + "import copy\nmodel = nn.Sequential(model, *copy.deepcopy(model))\n"  # as nn.TransformerEncoder
    answer = previewed(tmp_path, copies + DDP + LOOP)
    first = answer.captures[0]
    ran = [first.kernels[op.signature].name for op in first.ops[slice(*first.steady[-1])] if op.kind == "kernel"]
    assert sum(name == "aten.addmm.default" for name in ran) == 4  # a linear layer each, forwards
    assert answer.graph.flops == 6 * 8 * 4 * 64 * 256 - 2 * 8 * 64 * 256  # of the batch no gradient is made


def test_a_copied_model_keeps_the_numbers_of_its_buffers(tmp_path: Path) -> None:
    averaged = "import copy\nmodel.register_buffer('places', torch.arange(4.0))\nmodel.to(here)\n"
    averaged += "average = copy.deepcopy(model)\naverage.places += 1\n"
    averaged += "assert (average.places.tolist(), model.places.tolist()) == ([1, 2, 3, 4], [0, 1, 2, 3])\n"
    assert previewed(tmp_path, HEAD + averaged + DDP + LOOP).captures[0].facts["model"]["parameters"] == PARAMETERS


@pytest.mark.parametrize("name", ["SGD", "Adagrad", "AdamW"])
def test_a_fused_optimizer_is_one_kernel_under_a_scaler(tmp_path: Path, name: str) -> None:
    scaled = LOOP.replace("AdamW(model.parameters())", f"{name}(model.parameters(), fused=True)")
    scaled = scaled.replace(".sum().backward()", ".sum() * 2\n    scaler.scale(loss).backward()")
    scaled = scaled.replace("    model(", "    loss = model(").replace(
        "optimizer.step()", "scaler.step(optimizer); scaler.update()"
    )
    first = previewed(tmp_path, HEAD + DDP + "scaler = torch.amp.GradScaler('cuda')" + scaled).captures[0]
    ran = [first.kernels[op.signature].name for op in first.ops[slice(*first.steady[-1])] if op.kind == "kernel"]
    assert sum(each.startswith("aten._fused_") for each in ran) == 1


def test_gradients_of_a_table_that_is_read_thrice_add_up_in_place(tmp_path: Path) -> None:
    shared = """
import torch
table = torch.nn.Embedding(100_000, 64).cuda()
optimizer = torch.optim.SGD(table.parameters())
rows = [torch.randint(0, 100_000, (16,), device="cuda") for _ in range(3)]
for _ in range(5):
    (table(rows[0]) * table(rows[1]) * table(rows[2])).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
    answer = previewed(tmp_path, shared)
    assert 3 <= answer.memory.peak_bytes / (100_000 * 64 * 4) < 3.1  # the table and two gradients


def test_the_gradient_of_silu_is_one_kernel(tmp_path: Path) -> None:
    gated = HEAD.replace("nn.Linear(64, 256),", "nn.Linear(64, 256), nn.SiLU(),")
    first = previewed(tmp_path, gated + DDP + LOOP).captures[0]
    ran = [first.kernels[op.signature].name for op in first.ops[slice(*first.steady[-1])] if op.kind == "kernel"]
    assert "aten.silu_backward.default" in ran and "aten.sigmoid.default" not in ran


def test_an_optimizer_that_reads_values_begins_once(tmp_path: Path) -> None:
    stepping = "class Norms(torch.optim.SGD):\n    @torch.no_grad()\n    def step(self):\n"
    stepping += "        for group in self.param_groups:\n            for w in group['params']:\n"
    plain = "                w.sub_(w.grad / w.grad.norm())\n"
    reading = "                w.sub_(w.grad / w.grad.norm().item())\n"
    hosts = []
    for each in (plain, reading):
        loop = LOOP.replace("torch.optim.AdamW", "Norms")
        hosts.append(previewed(tmp_path, HEAD + stepping + each + DDP + loop).graph.host_s)
    assert abs(hosts[1] - hosts[0]) < 0.5e-3  # and not a begin of an optimizer for each of four weights


def test_lists_of_numbers_are_indices(tmp_path: Path) -> None:
    out = "out = model(torch.randn(8, 64).to(here))"
    listed = LOOP.replace(
        "model(torch.randn(8, 64).to(here)).sum()",
        f"{out}; (out[[0, 2, 5]].sum() + out[:, [-1, 0]].sum() + out[range(4)].sum())",
    )
    first = previewed(tmp_path, HEAD + DDP + listed).captures[0]
    taken = {kernel.outs[0][0] for kernel in first.kernels if kernel.name.startswith("aten.index.")}
    assert taken == {(3, 64), (8, 2), (4, 64)}


def test_a_recurrent_layer_is_one_kernel_of_its_operations(tmp_path: Path) -> None:
    recurrent = HEAD.replace("nn.Linear(256, 64)", "Last()").replace("model =", CELL + "model =")
    first = previewed(tmp_path, recurrent + DDP + LOOP).captures[0]
    ran = [first.kernels[op.signature] for op in first.ops[slice(*first.steady[-1])] if op.kind == "kernel"]
    forward, backward = (kernel for kernel in ran if "_cudnn_rnn" in kernel.name)
    steps = forward.ins[0][0][0]  # rows of a batch are the steps of one sequence here
    by_hand = steps * 2 * 4 * 64 * (256 + 64)  # four gates, each a product of the input and one of the state
    assert executed_flops(forward) == by_hand and executed_flops(backward) == 2 * by_hand


ALONE = "import sys; from syncline.previewing.capture.apart import alone; sys.exit(not alone()[0])"
STAYS = "time.sleep(300)"
FORGETS = 'os.execve("/bin/sleep", ["sleep", "300"], {})'
LEAVES = """
import os, time
def leave():
    {how}
pid = os.fork()
if not pid:
    os.setsid()
    leave()
raise KeyError(f"after {pid}")
"""


@pytest.mark.parametrize("how", [STAYS, FORGETS])
def test_a_process_that_leaves_its_session_ends_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    if how == FORGETS and subprocess.run([sys.executable, "-c", ALONE]).returncode:
        pytest.skip("this kernel gives no process a network of its own")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PreviewError, match=r"after \d+") as told:
        previewed(tmp_path, LEAVES.replace("{how}", how))
    left = Path("/proc") / str(told.value).partition("after ")[2].partition("'")[0] / "stat"
    until = time.monotonic() + 60  # ended, it may still be leaving; unheeded it would sleep for 300 s
    while left.exists() and left.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < until, "it is still there"
        time.sleep(0.05)


CELL = """
class Last(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTM(256, 64)
    def forward(self, x):
        return self.cell(x)[0]
"""


ROTATED = (
    HEAD
    + """
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(64, 192)
    def forward(self, x):
        q, k, v = self.qkv(x).view(2, 16, 3, 2, 32).permute(2, 0, 3, 1, 4)
        turned = torch.ones(16, 32, device=x.device)  # as rotary positions: the product is of 32 bits
        return nn.functional.scaled_dot_product_attention(q * turned, k * turned, v, is_causal=True)

model = Attention().to(here)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(5):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(torch.randn(2, 16, 64, device=here)).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
)


def test_autocast_narrows_what_attention_is_given(tmp_path: Path) -> None:
    kernels = previewed(tmp_path, ROTATED).captures[0].kernels
    given = {t for k in kernels if "attention" in k.name for shape, t, _ in k.ins if len(shape) == 4}
    assert given == {"bfloat16"}
    assert any("flash_attention_backward" in k.name for k in kernels)


SPAWNED = """
import os, torch, torch.distributed as dist, torch.multiprocessing as mp
from torch import nn

def work(rank, world):
    dist.init_process_group("nccl", rank=rank, world_size=world)
    model = nn.parallel.DistributedDataParallel(nn.Linear(64, 64).to(rank), device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        model(torch.randn(8, 64).to(rank)).sum().backward()
        optimizer.step()

if __name__ == "__main__":
    mp.spawn(work, args=(torch.cuda.device_count(),), nprocs=torch.cuda.device_count())
"""
SMALL = """
import torch
from torch import nn
model = nn.Linear(64, 10).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
ON_CPU = """
for _ in range(5):
    model(torch.randn(8, 64)).sum().backward()
    optimizer.step()
"""
VALIDATED = (
    SMALL
    + """
for _ in range(5):
    with torch.inference_mode():
        print(model(torch.randn(8, 64).cuda()).argmax(1).float().mean().item())
    model(torch.randn(8, 64, device="cuda")).sum().backward()
    optimizer.step()
"""
)
TRANSFORMED = (
    SMALL
    + """
class Crop(nn.Module):
    def forward(self, x):
        return x[:, :64]

crop = Crop()
for _ in range(5):
    model(crop(torch.randn(8, 80)).cuda()).sum().backward()
    optimizer.step()
"""
)
TENSOR = """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.functional import scaled_dot_product_attention

class Attend(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(64, 64) for _ in range(4))

    def forward(self, x):
        q, k, v = (p(x).view(2, 4, 4, 16).transpose(1, 2) for p in (self.q, self.k, self.v))
        return self.o(scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(2, 4, 64))

model = Attend().to(here)
plan = {name: ColwiseParallel(use_local_output=False) for name in "qkv"} | {"o": RowwiseParallel()}
mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp"))
parallelize_module(model, mesh["tp"], plan)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(5):
    model(torch.randn(2, 4, 64, device="cuda")).sum().backward()
    optimizer.step()
"""


def alone(folder: Path, source: str) -> PreviewAnswer:
    script = folder / "train.py"
    script.write_text(source)
    return syncline.preview("h100-64-rail", ["python", str(script)], what_if=[])


def test_a_script_that_spawns_its_ranks_is_one_of_them_on_every_gpu_of_a_host(tmp_path: Path) -> None:
    answer = alone(tmp_path, SPAWNED)
    assert answer.launch.world == 8
    assert {use.ranks for use in answer.collectives if use.name == "all_reduce"} == {8}


def test_values_are_read_in_inference_mode_too(tmp_path: Path) -> None:
    assert alone(tmp_path, VALIDATED).captures[0].facts["model"]["parameters"] == 650


def test_a_module_without_parameters_is_no_model(tmp_path: Path) -> None:
    assert alone(tmp_path, TRANSFORMED).captures[0].facts["model"]["class"] == "Linear"


def test_attention_on_sharded_heads_is_fused(tmp_path: Path) -> None:
    kernels = {kernel.name for kernel in previewed(tmp_path, HEAD + TENSOR).captures[0].kernels}
    assert any("attention" in name for name in kernels)


@pytest.mark.parametrize(
    ("source", "hint"),
    [
        ("import nosuchmodule", "Install what the script imports"),
        ("assert False, 'no'", "The script or a library raised this"),
        (SMALL.replace(".cuda()", "") + ON_CPU, "--cpu --measure"),
    ],
)  # fmt: skip
def test_what_a_script_lacks_is_told_apart_from_what_the_preview_lacks(tmp_path: Path, source: str, hint: str) -> None:
    with pytest.raises(PreviewError) as failed:
        alone(tmp_path, source)
    assert hint in (failed.value.hint or "")


def test_views_made_in_inference_mode_are_read_after_it_in_every_step(tmp_path: Path) -> None:
    accuracy = """    with torch.inference_mode():
        best = torch.ones(2, 8, device="cuda").topk(1, 0)[1]
        correct = torch.zeros(8, dtype=torch.long, device="cuda")[None].eq(best)
        right = correct[:1].flatten().sum(dtype=torch.float32)
    right.item()
"""
    assert previewed(tmp_path, HEAD + DDP + LOOP + accuracy).report.steps == 2


def test_numpy_keeps_the_type_of_a_tensor(tmp_path: Path) -> None:
    check = '    assert str(torch.ones(3, device="cuda").to(torch.uint8).cpu().numpy().dtype) == "uint8"\n'
    assert previewed(tmp_path, HEAD + DDP + LOOP + check).report.steps == 2


ALONE = """
import os, subprocess, sys, torch, torch.distributed as dist
if "LOCAL_RANK" not in os.environ:
    assert "RANK" not in os.environ and "TORCHELASTIC_RUN_ID" not in os.environ
    subprocess.Popen([sys.executable, *sys.argv], env=os.environ | {"LOCAL_RANK": "1", "WORLD_SIZE": "4"})
    sys.exit("it started its ranks itself")
dist.init_process_group("nccl")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64).cuda())
here = 0
"""


def test_a_script_that_starts_itself_again_is_one_rank_of_its_world(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ALONE + LOOP)
    found = syncline.preview("h100-64-rail", ["python", str(tmp_path / "train.py")], what_if=[])
    assert found.report.ranks == 4


def test_what_is_scripted_runs_as_it_is_written(tmp_path: Path) -> None:
    scripted = (
        "@torch.jit.script\ndef drop(x: torch.Tensor) -> torch.Tensor:\n    return nn.functional.dropout(x, 0.1)\n"
    )
    assert previewed(tmp_path, HEAD + scripted + DDP + LOOP + "    drop(torch.ones(2, 2))\n").report.steps == 2


def test_packed_sequences_are_one_kernel_a_layer_and_keep_their_lengths(tmp_path: Path) -> None:
    """Ten of 20 steps and two of 10: 220 rows, as eleven sequences of 20."""
    source = """
import torch
from torch import nn
net = nn.LSTM(64, 128, batch_first=True).cuda()
optimizer = torch.optim.AdamW(net.parameters())
for _ in range(4):
    x, lengths = torch.randn(12, 20, 64, device="cuda"), torch.tensor([20] * 10 + [10] * 2)
    packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
    assert packed.data.shape == (220, 64)
    out, (hidden, _) = net(packed)
    full, given = nn.utils.rnn.pad_packed_sequence(out, batch_first=True)
    assert full.shape == (12, 20, 128) and hidden.shape == (1, 12, 128) and given.tolist() == lengths.tolist()
    full.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
    first = previewed(tmp_path, source).captures[0]
    ran = [first.kernels[op.signature] for op in first.ops[slice(*first.steady[-1])] if op.kind == "kernel"]
    forward, backward = (kernel for kernel in ran if "_cudnn_rnn" in kernel.name)
    by_hand = 220 * 2 * 4 * 128 * (64 + 128)  # four gates, each a product of the input and one of the state
    assert executed_flops(forward) == by_hand and executed_flops(backward) == 2 * by_hand


def test_what_values_decide_has_a_stated_shape(tmp_path: Path) -> None:
    source = """
import torch
import torch.nn.functional as F
from torch import nn
net = nn.Linear(64, 64).cuda()
optimizer = torch.optim.AdamW(net.parameters())
for _ in range(4):
    x = net(torch.randn(64, 64, device="cuda"))
    beta = torch.distributions.Beta(x.exp(), x.exp())
    policy = torch.distributions.Categorical(logits=x)
    loss = beta.log_prob(beta.rsample()).mean() + policy.log_prob(policy.sample()).mean()
    logs, labels = x.view(32, 2, 64).log_softmax(-1), torch.randint(1, 63, (2, 10), device="cuda")
    loss = loss + F.ctc_loss(logs, labels, torch.full((2,), 32).cuda(), torch.full((2,), 10).cuda())
    twice = x.repeat_interleave(torch.full((64,), 2, device="cuda"), dim=0)
    kinds, counts = torch.unique(labels, return_counts=True)
    assert torch.equal(x, x) and kinds.shape == counts.shape and twice.shape == (128, 64)
    wide, narrow = (torch.randn(2, 4, 128, d, device="cuda", dtype=torch.bfloat16) for d in (96, 64))
    assert F.scaled_dot_product_attention(wide, wide, narrow).shape == (2, 4, 128, 64)
    (loss + twice.mean()).backward()
    optimizer.step()
    optimizer.zero_grad()
"""
    assert previewed(tmp_path, source).step_time_s > 0
