"""The exchange, stage by stage, on a wire in memory: its result, its residuals, its memory, its checks."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the runtime needs torch")
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.codec.names import dense
from syncline.errors import AgreementError
from syncline.program.pieces import shard_bounds
from syncline.runtime.sync.exchange import Exchange, ExchangePlace, Trouble
from syncline.runtime.sync.step import Step
from syncline.runtime.wire.memory_wire import wires
from syncline.runtime.wire.message import FAILED, NONFINITE, Box, Slot, Stamp

NUM_RANKS = 3


def exchanges(values, codec, residuals=None):
    made = []
    for rank, wire in enumerate(wires(len(values))):
        residual = None if residuals is None else residuals[rank]
        made.append(Exchange(values[rank], residual, dense(codec), wire, ExchangePlace(1, 2, 3, rank, lambda shard: 0)))
    return made


def test_messages_are_numbered_from_one_so_that_an_old_one_is_refused() -> None:
    values, numbers = random_values(2000), []
    made = exchanges(values, "fp32")
    for number in range(3):
        run(made, number)
        header = made[0]._out[1].tensor[:64].view(torch.int32)
        numbers.append(int(header[3]))
    assert numbers == [1, 2, 3]


def reduced(exchange: Exchange) -> Trouble | None:
    """Do what the stage of the sum does."""
    trouble = exchange.receive()
    if trouble is None:
        exchange.sum_up()
        exchange.post()
    return trouble


def run(made, number=0):
    step = Step(number, 0, "", 0.0)
    for exchange in made:
        exchange.send(step)
    troubles = [reduced(exchange) for exchange in made]
    if troubles[0] is None:
        for exchange in made:
            exchange.collect()
    return troubles


def random_values(num_elements, size=NUM_RANKS, seed=0):
    random = torch.Generator().manual_seed(seed)
    return [torch.randn(num_elements, generator=random) for _ in range(size)]


@given(num_elements=st.integers(0, 3000), size=st.integers(1, 5))
def test_shards_cover_everything_once_in_order(num_elements: int, size: int) -> None:
    bounds = shard_bounds(num_elements, size)
    assert len(bounds) == size
    assert [low for low, _ in bounds] == [0, *(high for _, high in bounds[:-1])]
    assert bounds[-1][1] == num_elements


@settings(max_examples=30)
@given(
    num_elements=st.integers(1, 2500), size=st.integers(2, 4), codec=st.sampled_from(["fp32", "int8", "sign", "int4"])
)
def test_every_rank_ends_with_the_same_bits_and_nothing_is_lost(num_elements: int, size: int, codec: str) -> None:
    values = random_values(num_elements, size)
    mean = torch.stack(values).mean(0)
    residuals = [torch.zeros(num_elements) for _ in values]
    assert run(exchanges(values, codec, residuals)) == [None] * size
    assert all(torch.equal(value, values[0]) for value in values)
    torch.testing.assert_close(values[0] + torch.stack(residuals).mean(0), mean, rtol=1e-4, atol=1e-5)


def test_no_tensor_is_allocated_after_the_first_step() -> None:
    values = random_values(1 << 16)
    residuals = [torch.zeros(1 << 16) for _ in values]
    for codec in ("int8", "int4", "sign", "bf16"):
        made = exchanges(values, codec, residuals)
        run(made)
        with torch.autograd.profiler.profile(profile_memory=True) as profile:
            run(made, 1)
        largest = max((event.self_cpu_memory_usage for event in profile.function_events), default=0)
        assert largest <= 64, f"{codec}: a scalar of the finite check is all that may be made"


def test_a_contribution_that_is_not_finite_is_named_by_every_rank_and_residuals_stay() -> None:
    values = random_values(2000)
    values[1][1500] = float("inf")
    residuals = [torch.full((2000,), 0.5) for _ in values]
    made = exchanges(values, "sign", residuals)
    assert run(made) == [Trouble(1, 0)] * NUM_RANKS
    for exchange in made:
        exchange.forget()
    for rank, residual in enumerate(residuals):
        own = slice(*shard_bounds(2000, NUM_RANKS)[rank])
        residual[own] = 0.5
        torch.testing.assert_close(residual, torch.full((2000,), 0.5), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("codec", ["int4", "sign", "fp16"])
@pytest.mark.parametrize("bad", [float("nan"), float("-inf")])
@pytest.mark.parametrize("place", [10, 800, 1900])
def test_trouble_found_while_encoding_leaves_the_residuals_of_all_shards_as_they_were(
    codec: str, bad: float, place: int
) -> None:
    values = random_values(2000)
    values[0][place] = bad
    residuals = [torch.full((2000,), 0.5) for _ in values]
    (exchange, *_) = exchanges(values, codec, residuals)
    exchange.send(Step(0, 0, "", 0.0))
    torch.testing.assert_close(residuals[0], torch.full((2000,), 0.5), rtol=1e-5, atol=1e-5)


def test_a_sum_with_the_residual_that_overflows_is_trouble() -> None:
    values = [torch.full((2000,), 3e38) for _ in range(NUM_RANKS)]
    residuals = [torch.full((2000,), 3e38) for _ in values]
    assert run(exchanges(values, "int8", residuals)) == [Trouble(0, 0)] * NUM_RANKS


def test_one_rank_alone_averages_with_itself() -> None:
    values = random_values(2000, 1)
    before = values[0].clone()
    assert run(exchanges(values, "bf16", None)) == [None]
    assert torch.equal(values[0], before.bfloat16().float())


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (Stamp(9, 2, 1, 5), "codec or version is 0x9 and 0x3 was due"),
        (Stamp(3, 9, 1, 5), "parameters of the bucket is 0x9 and 0x2 was due"),
        (Stamp(3, 2, 2, 5), "sequence is 0x2 and 0x1 was due"),
        (Stamp(3, 2, 1, 6), "step is 0x6 and 0x5 was due"),
    ],
)
def test_a_message_of_another_kind_is_refused(changed: Stamp, said: str) -> None:
    box = Box([100])
    box[0].seal(changed)
    with pytest.raises(AgreementError, match=said):
        box[0].open(Stamp(3, 2, 1, 5))


def test_a_message_without_its_end_is_refused_also_when_an_older_one_was_whole() -> None:
    sent, room, stamp = Box([100]), Box([100]), Stamp(3, 2, 1, 5)
    sent[0].seal(stamp, NONFINITE, 4, 7)
    room[0].tensor.copy_(sent[0].tensor)
    assert room[0].open(stamp) == (NONFINITE, 4, 7)
    room[0].tensor[:-10].copy_(sent[0].tensor[:-10])
    with pytest.raises(AgreementError, match="fewer than 100 payload bytes arrived"):
        room[0].open(stamp)


def test_a_changed_byte_anywhere_is_refused() -> None:
    sent, stamp = Box([10_000]), Stamp(3, 2, 1, 5)
    sent[0].payload.random_(0, 256, generator=torch.Generator().manual_seed(0))
    for place in (7 * 4, 8 * 4, 12 * 4, 15 * 4, 64, 64 + 4097, 64 + 9_999):
        sent[0].seal(stamp)
        sent[0].tensor[place] ^= 1
        with pytest.raises(AgreementError, match="bytes changed on the way: checksum"):
            sent[0].open(stamp)


@given(st.integers(0, 2499), st.integers(0, 2499))
def test_words_that_change_places_are_refused(one: int, other: int) -> None:
    sent, stamp = Box([20_000]), Stamp(3, 2, 1, 5)
    words = sent[0].payload.view(torch.int64)
    words.copy_(torch.arange(2500))
    sent[0].seal(stamp)
    words[one], words[other] = other, one
    if one != other:
        with pytest.raises(AgreementError, match="bytes changed on the way"):
            sent[0].open(stamp)


def test_a_message_of_another_place_or_rank_is_refused() -> None:
    box = Box([100])
    box[0].seal(Stamp(3, 2, 1, 5, tag=4, sender=2, receiver=0))
    with pytest.raises(AgreementError, match=r"\(tag, sender, receiver\) is \(4, 2, 0\) and \(5, 2, 0\) was due"):
        box[0].open(Stamp(3, 2, 1, 5, tag=5, sender=2, receiver=0))


class DeviceSlot(Slot):
    """A slot that treats host memory as that of a device: header and trailer are copied, sums are torch's."""

    def _is_on_host(self, part: torch.Tensor) -> bool:
        return False


@pytest.mark.parametrize("size", [0, 10, 4096, 100_003])
def test_a_slot_on_a_device_writes_the_same_message(size: int) -> None:
    host, device, stamp = Box([size]), Box([size]), Stamp(3, 2, 1, 5)
    device.slots = [DeviceSlot(device.rooms[0], size)]
    host[0].payload.random_(0, 256, generator=torch.Generator().manual_seed(size))
    device[0].payload.copy_(host[0].payload)
    for slot in (host[0], device[0]):
        slot.seal(stamp, NONFINITE, 4, 7)
    assert torch.equal(host.buffer, device.buffer)
    assert device[0].open(stamp) == (NONFINITE, 4, 7)
    with pytest.raises(AgreementError, match="start mark is 0x0"):
        device[0].open(stamp)
    device.buffer.copy_(host.buffer)
    device[0].tensor[64 + size // 2] ^= 1
    with pytest.raises(AgreementError, match="bytes changed on the way" if size else "fewer than 0 payload bytes"):
        device[0].open(stamp)


def test_a_staged_payload_is_brought_before_it_is_sealed_and_taken_when_it_is_opened() -> None:
    host, staged, stamp = Box([100]), Box([100], staged=True), Stamp(3, 2, 1, 5)
    host[0].payload.random_(0, 256, generator=torch.Generator().manual_seed(0))
    staged[0].payload.copy_(host[0].payload)
    staged.bring()
    for box in (host, staged):
        box[0].seal(stamp)
    assert torch.equal(host.buffer, staged.buffer)
    came = Box([100], staged=True)
    came.buffer.copy_(staged.buffer)
    assert came[0].open(stamp) == (0, 0, 0)
    came.take()
    assert torch.equal(came[0].payload, host[0].payload)


def test_a_failure_is_heard_whatever_else_the_message_says() -> None:
    box = Box([100])
    box[0].seal(Stamp(9, 9, 9, 9), FAILED, 2)
    assert box[0].open(Stamp(3, 2, 1, 5))[:2] == (FAILED, 2)


def test_a_wire_with_checksums_of_its_own_leaves_payloads_unsummed() -> None:
    sent, came, stamp = Box([20_000], summed=False), Box([20_000], summed=False), Stamp(3, 2, 1, 5)
    sent[0].seal(stamp)
    came.buffer.copy_(sent.buffer)
    came[0].payload[5000] ^= 1
    assert came[0].open(stamp) == (0, 0, 0)
    came.buffer.copy_(sent.buffer)
    came[0].tensor[16] ^= 1
    with pytest.raises(AgreementError, match="step is"):
        came[0].open(stamp)
