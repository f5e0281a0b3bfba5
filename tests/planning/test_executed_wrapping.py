"""What `step` prices of FSDP and DDP is what PyTorch's own wrapping does: parameters held, bytes gathered and reduced.

A model of the shape's own matrices is wrapped as torchtitan wraps it, on eight ranks of a fake process group, and one
micro-batch goes forward and backward.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from syncline.fabric import load
from syncline.planning.frameworks.launch_torch import torchtitan_values
from syncline.sim.step.step import step
from syncline.workload.job import Job
from syncline.workload.read_job import load_job
from syncline.workload.shape import Shape
from syncline.workload.volumes import volumes

torch = pytest.importorskip("torch")
nn = torch.nn
RANKS = 8
SHAPE = Shape(layers=4, hidden=64, heads=4, kv_heads=2, ffn=128, vocab=512, gated=True)


class Layer(nn.Module):  # type: ignore[misc,name-defined]
    """Attention and a gated block, a norm before each."""

    def __init__(self, s: Shape) -> None:
        super().__init__()
        kv = s.num_kv_heads * s.qk_size
        self.queries, self.out = nn.Linear(s.hidden, s.hidden, bias=False), nn.Linear(s.hidden, s.hidden, bias=False)
        self.keys, self.values = nn.Linear(s.hidden, kv, bias=False), nn.Linear(s.hidden, kv, bias=False)
        self.gate, self.up = nn.Linear(s.hidden, s.ffn, bias=False), nn.Linear(s.hidden, s.ffn, bias=False)
        self.down = nn.Linear(s.ffn, s.hidden, bias=False)
        self.norms = nn.ModuleList(nn.RMSNorm(s.hidden) for _ in range(2))

    def forward(self, x: Any) -> Any:
        y = self.norms[0](x)
        groups = SHAPE.heads // SHAPE.num_kv_heads
        mixed = self.queries(y) + (self.keys(y) + self.values(y)).repeat(1, 1, groups)
        x = x + self.out(mixed)
        y = self.norms[1](x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


class Model(nn.Module):  # type: ignore[misc,name-defined]
    """Embedding, layers, norm and output layer."""

    def __init__(self, s: Shape) -> None:
        super().__init__()
        self.embedding = nn.Embedding(s.vocab, s.hidden)
        self.layers = nn.ModuleList(Layer(s) for _ in range(s.layers))
        self.norm, self.head = nn.RMSNorm(s.hidden), nn.Linear(s.hidden, s.vocab, bias=False)

    def forward(self, tokens: Any) -> Any:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


@pytest.fixture
def world() -> Iterator[Any]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    yield init_device_mesh("cpu", (RANKS,))
    torch.distributed.destroy_process_group()


def job_of(framework: str, **parallel: Any) -> Job:
    overlap = {"reshard": parallel.pop("reshard")} if "reshard" in parallel else {}
    return load_job({
        "model": SHAPE, "batch": {"global": RANKS, "micro": 1, "sequence": 16}, "parallel": parallel,
        "overlap": overlap, "gradient_bytes": 4, "software": {"framework": framework},
    }).on(RANKS)  # fmt: skip


def sent(bytes_: float) -> float:
    return (RANKS - 1) / RANKS * bytes_


@pytest.mark.parametrize("reshard", [True, False])
def test_fsdp_gathers_reduces_and_keeps_what_is_priced(world: Any, reshard: bool, monkeypatch: Any) -> None:
    from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

    seen = {"gathered": 0, "reduced": 0}
    for name, key, which in (
        ("all_gather_single", "gathered", "output_tensor"), ("reduce_scatter_single", "reduced", "input"),
    ):  # fmt: skip
        call = getattr(torch.distributed, name)

        def counted(*given: Any, call: Any = call, key: str = key, which: str = which, **named: Any) -> Any:
            tensor: Any = named.get(which, given[(key == "reduced")] if given else None)
            seen[key] += tensor.numel() * tensor.element_size()
            return call(*given, **named)

        monkeypatch.setattr(torch.distributed, name, counted)
    job = job_of("torchtitan", zero="3", reshard=reshard)
    values = torchtitan_values(job, SHAPE)
    assert values["parallelism.fsdp_reshard_after_forward"] == ("always" if reshard else "never")
    model = Model(SHAPE)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)  # torchtitan's defaults
    how = {"mesh": world, "mp_policy": policy, "reshard_after_forward": reshard}
    for part in (model.embedding, *model.layers, [model.norm, model.head], model):
        fully_shard(part, **how)
    out = model(torch.zeros(1, 16, dtype=torch.long))
    groups = {part._get_fsdp_state()._fsdp_param_group for part in model.modules() if isinstance(part, FSDPModule)}
    kept = sum(
        tensor.untyped_storage().size()
        for group in groups if group for weight in group.fsdp_params for tensor in weight.all_gather_outputs
    )  # fmt: skip
    out.sum().backward()
    held = sum(weight.to_local().numel() for weight in model.parameters())

    (priced,) = volumes(job)
    assert sent(seen["gathered"] + seen["reduced"]) == pytest.approx(priced.size_bytes)
    assert seen["reduced"] == 4 * SHAPE.params and held == SHAPE.params / RANKS
    assert kept == (0 if reshard else 2 * SHAPE.params)
    host = load({"hosts": 1, "host": "dgx-h100", "network": "rail-optimized NDR"})
    memory = {choice: step(host, job_of("torchtitan", zero="3", reshard=choice)).memory_bytes["parameters"]
              for choice in (True, False)}  # fmt: skip
    # bf16 of the shard (its fp32 is with the optimizer's state), and what stays gathered; the last norm is left out
    stays = 2 * SHAPE.params / RANKS + 2 * SHAPE.params
    assert memory[False] == pytest.approx(stays, rel=1e-3) and memory[False] > memory[True]


def test_ddp_reduces_what_is_priced(world: Any) -> None:
    from torch.nn.parallel import DistributedDataParallel

    job, seen = job_of("pytorch", zero="none"), [0]

    def counted(_: Any, bucket: Any) -> Any:
        seen[0] += bucket.buffer().numel() * bucket.buffer().element_size()
        done: Any = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    model = DistributedDataParallel(Model(SHAPE))
    counted.__annotations__ = {}  # DDP compares annotations with its own types, and these are words
    model.register_comm_hook(None, counted)
    model(torch.zeros(1, 16, dtype=torch.long)).sum().backward()
    (priced,) = volumes(job)
    assert 2 * sent(seen[0]) == pytest.approx(priced.size_bytes) and seen[0] == 4 * SHAPE.params
    assert sum(weight.numel() for weight in model.parameters()) == SHAPE.params
