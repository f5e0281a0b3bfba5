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
from syncline.codec.scheme import Scheme  # noqa: E402
from syncline.errors import CodecError  # noqa: E402
from syncline.runtime.sync.gpu.codec import CudaCodec  # noqa: E402

pytestmark = pytest.mark.gpu

DENSE = (
    "fp32", "fp16", "bf16", "fp8", "fp8:format=e5m2,block=64", "int8", "int8:block=32,round=stochastic",
    "int8:block=4096", "int4", "int4:block=64,round=stochastic", "sign", "sign:block=32", "sign:block=65536",
)  # fmt: skip
SPARSE = ("topk:keep=0.01", "topk:keep=0.2", "topk:keep=0.01+int8", "topk:keep=0.1+sign:block=32")
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
    host_state, device_state = known.new_state(values.size, seed=5), gpu.new_state(values.size, seed=5)
    device_values = torch.from_numpy(values).cuda()
    host_owed = None if owed is None else owed.copy()
    device_owed = None if owed is None else torch.from_numpy(owed).cuda()
    for _ in range(steps):
        payload = np.zeros(known.wire_bytes(values.size), np.uint8)
        device_payload = torch.full((payload.size,), 7, dtype=torch.uint8, device="cuda")
        known.encode(values, payload, host_state, host_owed)
        gpu.encode(device_values, device_payload, device_state, device_owed)
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


def owed_and_sent(known: Scheme, values: np.ndarray, owed: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    gpu = CudaCodec(known)
    residual = torch.from_numpy(owed.copy()).cuda()
    payload = torch.empty(known.wire_bytes(values.size), dtype=torch.uint8, device="cuda")
    gpu.encode(torch.from_numpy(values).cuda(), payload, gpu.new_state(values.size, seed=1), residual)
    decoded = torch.empty(values.size, device="cuda")
    gpu.decode(payload, decoded)
    host = np.empty(values.size, np.float32)
    known.decode(payload.cpu().numpy(), host)  # the CPU reads what the GPU wrote
    np.testing.assert_array_equal(host, decoded.cpu().numpy())
    return residual.cpu().numpy(), host, int(payload[:4].view(torch.int32).item())


@pytest.mark.parametrize("size", [1, 2, 100, 5000, 65536, 1_000_003])
@pytest.mark.parametrize("codec", SPARSE)
def test_sparse_codecs_send_the_largest_and_owe_the_rest(codec: str, size: int) -> None:
    known = scheme(codec)
    values, owed = numbers(size, 7), numbers(size, 8) * np.float32(0.1)
    residual, sent, count = owed_and_sent(known, values, owed)
    a = values + owed
    np.testing.assert_allclose(residual + sent, a, rtol=1e-6, atol=1e-6 * np.abs(a).max(initial=1))
    room = known.wire_bytes(size) // 8 if "+" not in codec else count
    assert 1 <= count <= max(1, room)
    if "+" not in codec:
        assert np.abs(a[sent != 0]).min() >= np.abs(residual).max() * 0.99
        if size <= 65536:
            top = np.sort(np.abs(a))[::-1]
            assert set(np.abs(sent[sent != 0])) == set(top[: np.count_nonzero(sent)])


@pytest.mark.parametrize("codec", SPARSE)
def test_a_sparse_payload_with_a_nan_is_poisoned_and_owes_what_is_finite(codec: str) -> None:
    values, owed = numbers(5000, 7), np.zeros(5000, np.float32)
    values[17] = np.nan
    residual, sent, count = owed_and_sent(scheme(codec), values, owed)
    assert np.isnan(sent).all()
    assert count == 0
    np.testing.assert_array_equal(residual, np.where(np.isnan(values), np.float32(0), values))


@pytest.mark.parametrize("codec", DENSE + SPARSE)
@pytest.mark.parametrize("size", [1, 257, 5000])
@pytest.mark.parametrize("bad", [None, float("nan"), float("inf")])
def test_encode_tells_whether_all_was_finite(codec: str, size: int, bad: float | None) -> None:
    values = torch.from_numpy(numbers(size, 3)).cuda()
    if bad is not None:
        values[size // 2] = bad
    gpu = CudaCodec(scheme(codec))
    payload = torch.full((gpu.scheme.wire_bytes(size),), 255, dtype=torch.uint8, device="cuda")
    assert bool(gpu.encode(values, payload, gpu.new_state(size), torch.zeros_like(values))) is (bad is None)


def test_damaged_payloads_raise_and_write_nothing() -> None:
    gpu = CudaCodec(scheme("topk:keep=0.01"))
    payload = torch.zeros(8 + 80, dtype=torch.uint8, device="cuda")
    words = payload.view(torch.int32)
    out = torch.ones(1000, device="cuda")
    words[0], words[2] = 1, 1000
    with pytest.raises(CodecError, match="index outside the 1000 elements"):
        gpu.decode(payload, out)
    words[0] = 11
    with pytest.raises(CodecError, match="holds 11 elements"):
        gpu.decode(payload, out)
    with pytest.raises(CodecError, match="has 88 bytes; got 87"):
        gpu.decode(payload[:-1], out)
    assert (out == 1).all()


def test_a_payload_may_start_at_any_address() -> None:
    known = scheme("int8")
    room = torch.empty(known.wire_bytes(1000) + 3, dtype=torch.uint8, device="cuda")
    values = torch.from_numpy(numbers(1000, 2)).cuda()
    gpu = CudaCodec(known)
    gpu.encode(values, room[3:], gpu.new_state(1000), None)
    out = torch.empty(1000, device="cuda")
    gpu.decode(room[3:], out)
    assert float((out - values).abs().max()) <= float(values.abs().max()) / 127
