"""The exchange on CUDA tensors: payloads stay on the device, and ranks get the bits that the CPU gives.

Needs a GPU: `pytest -m gpu tests/runtime/test_gpu_exchange.py`. One GPU is enough: several ranks live in one process,
and NCCL has one rank.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the runtime needs torch")
pytest.importorskip("triton", reason="GPU kernels need Triton")
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

import torch.distributed as dist  # noqa: E402
from tests.runtime.sync.test_exchange import exchanges, random_values, run  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

import syncline.torch  # noqa: E402
from syncline.errors import NonFiniteError  # noqa: E402
from syncline.host.ports import meeting_port  # noqa: E402
from syncline.runtime.sync.exchange import Trouble  # noqa: E402

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("codec", ["fp32", "bf16", "int8", "int4", "sign"])
@pytest.mark.parametrize("feedback", [False, True])
def test_ranks_on_a_device_get_the_bits_of_the_cpu(codec: str, feedback: bool) -> None:
    size, results = 50_001, []
    for device in ("cpu", "cuda"):
        values = [part.to(device) for part in random_values(size)]
        residuals = [torch.zeros(size, device=device) for _ in values] if feedback else None
        made = exchanges(values, codec, residuals)
        for number in range(2):
            assert run(made, number) == [None] * len(values)
        results.append([part.cpu() for part in (*values, *(residuals or ()))])
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("place", [10, 20_000, 49_000])
def test_what_is_not_finite_is_named(place: int) -> None:
    values = [part.cuda() for part in random_values(50_001)]
    values[1][place] = float("nan")
    residuals = [torch.full((50_001,), 0.5, device="cuda") for _ in values]
    made = exchanges(values, "int4", residuals)
    assert run(made) == [Trouble(1, 0)] * len(values)
    torch.testing.assert_close(residuals[1].cpu(), torch.full((50_001,), 0.5), rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="module")
def world() -> object:
    """One rank of NCCL."""
    dist.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{meeting_port()}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("codec", ["int8", "int4", "sign", "powersgd:rank=2"])
def test_a_model_trains_over_nccl(world: object, codec: str) -> None:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 1)).cuda()
    model = DistributedDataParallel(layers, device_ids=[0], bucket_cap_mb=0.1)
    handle = syncline.torch.synchronize(model, codec=codec, piece_bytes=65536, check_every=2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(30):
        x = torch.randn(64, 256, device="cuda")
        loss = (model(x) - x[:, :4].sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    assert handle.report().step > 20
    handle.close()


def test_an_overflow_raises_over_nccl(world: object) -> None:
    model = DistributedDataParallel(nn.Linear(64, 64).cuda(), device_ids=[0])
    syncline.torch.synchronize(model, codec="int8", check_every=0)
    with pytest.raises(NonFiniteError, match='the gradient of "weight" on rank 0 is not finite'):
        model(torch.full((4, 64), float("inf"), device="cuda")).sum().backward()
