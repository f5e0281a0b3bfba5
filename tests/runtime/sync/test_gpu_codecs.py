"""The kernels for CUDA tensors against the NumPy reference: same bytes, same residual, same sums.

Needs a GPU: `pytest -m gpu tests/runtime/test_gpu_codecs.py`. Kept result: benchmarks/results/codecs_gpu.json.
"""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the runtime needs torch")
pytest.importorskip("triton", reason="GPU kernels need Triton")
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from syncline.codec.names import scheme  # noqa: E402
from syncline.errors import CodecError  # noqa: E402
from syncline.runtime.sync.gpu.codec import CudaCodec  # noqa: E402

pytestmark = pytest.mark.gpu

DENSE = (
    "fp32", "fp16", "bf16", "int8", "int8:block=32", "int8:block=4096", "int4", "int4:block=64", "sign",
    "sign:block=32", "sign:block=65536",
)  # fmt: skip
SIZES = (0, 1, 2, 7, 31, 33, 255, 256, 257, 2047, 2049, 5000, 65536, 70001)


def numbers(size: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    values = (rng.standard_normal(size) * 10.0 ** rng.integers(-6, 4, size)).astype(np.float32)
    values[rng.random(size) < 0.05] = 0
    return values


def both(codec: str, values: np.ndarray, owed: np.ndarray | None, steps: int = 3) -> None:
    """Encode the same stream on both sides and compare payload, residual, decoded and decoded-and-added."""
    known = scheme(codec)
    gpu = CudaCodec(known)
    device_values = torch.from_numpy(values).cuda()
    host_owed = None if owed is None else owed.copy()
    device_owed = None if owed is None else torch.from_numpy(owed).cuda()
    for _ in range(steps):
        payload = np.zeros(known.wire_bytes(values.size), np.uint8)
        device_payload = torch.full((payload.size,), 7, dtype=torch.uint8, device="cuda")
        known.encode(values, payload, host_owed)
        gpu.encode(device_values, device_payload, device_owed)
        assert device_payload.cpu().numpy().tobytes() == payload.tobytes()
        if host_owed is not None and device_owed is not None:
            np.testing.assert_array_equal(device_owed.cpu().numpy(), host_owed)
        for add in (False, True):
            out = numbers(values.size, 9)
            device_out = torch.from_numpy(out.copy()).cuda()
            known.decode(payload, out, add=add, scale=0.3)
            gpu.decode(device_payload, device_out, add=add, scale=0.3)
            np.testing.assert_array_equal(device_out.cpu().numpy(), out)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("codec", DENSE)
def test_dense_codecs_give_the_bytes_of_the_reference(codec: str, size: int) -> None:
    both(codec, numbers(size, 1), None)
    both(codec, numbers(size, 2), numbers(size, 3) * np.float32(0.1))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 3e38, 1e-42, -0.0])
@pytest.mark.parametrize("codec", DENSE)
def test_values_that_are_no_ordinary_numbers(codec: str, bad: float) -> None:
    values = numbers(3000, 4)
    values[[0, 1234, 2999]] = bad
    both(codec, values, None)
    both(codec, values, numbers(3000, 6) * np.float32(0.1), steps=2)
    both(codec, np.full(100, bad, np.float32), None)


@pytest.mark.parametrize("codec", DENSE)
@pytest.mark.parametrize("size", [1, 257, 5000])
@pytest.mark.parametrize("bad", [None, float("nan"), float("inf")])
def test_encode_tells_whether_all_was_finite(codec: str, size: int, bad: float | None) -> None:
    values = torch.from_numpy(numbers(size, 3)).cuda()
    if bad is not None:
        values[size // 2] = bad
    gpu = CudaCodec(scheme(codec))
    payload = torch.full((gpu.scheme.wire_bytes(size),), 255, dtype=torch.uint8, device="cuda")
    assert bool(gpu.encode(values, payload, torch.zeros_like(values))) is (bad is None)


def test_a_payload_of_another_length_raises_and_writes_nothing() -> None:
    gpu, out = CudaCodec(scheme("int8")), torch.ones(1000, device="cuda")
    with pytest.raises(CodecError, match="has 1008 bytes; got 1007"):
        gpu.decode(torch.zeros(1007, dtype=torch.uint8, device="cuda"), out)
    assert (out == 1).all()


def test_a_payload_may_start_at_any_address() -> None:
    known = scheme("int8")
    room = torch.empty(known.wire_bytes(1000) + 3, dtype=torch.uint8, device="cuda")
    values = torch.from_numpy(numbers(1000, 2)).cuda()
    gpu = CudaCodec(known)
    gpu.encode(values, room[3:], None)
    out = torch.empty(1000, device="cuda")
    gpu.decode(room[3:], out)
    assert float((out - values).abs().max()) <= float(values.abs().max()) / 127
