"""Messages between ranks: a header that says what follows, the payload, and a trailer that shows it came whole.

A receiver knows the length it expects, but a backend may deliver a shorter message without a word, and a message may be
that of another step, codec, place or rank, or hold bytes that changed in memory or on the way. Header, checksum and
trailer make each of these an error instead of a wrong average.

The checksum is the CRC-32 of the header and of the payload's sums by rows and by columns of 4 KiB: any change within
4 KiB is seen for certain, a larger one but for one in four thousand million; sums run several times faster than a CRC.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from syncline.errors import AgreementError

MAGIC = 0x53594E43
PROTOCOL = 3
"""Version of what ranks say to each other; raised whenever a byte changes its meaning."""
HEADER_BYTES = 64
TRAILER_BYTES = 4
ALIGNMENT = 64

NONFINITE = 1
"""Flag: a contribution holds NaN or an infinity: that of rank `origin`, in parameter `detail` of the bucket."""
FAILED = 2
"""Flag: I cannot go on; raise with me."""

EVERYONE = 0xFFFFFFFF
"""The receiver of a message that all get alike."""

_FIELDS = ("start mark", "codec or version", "parameters of the bucket", "sequence", "step", "length")
_SAID, _ROUTE = slice(6, 9), slice(9, 12)
_CHECKSUM = 12
_ROW_WORDS = 512


@dataclass(frozen=True)
class Stamp:
    """What both ends of a message must agree on before its payload means anything."""

    codec: int
    layout: int
    sequence: int
    step: int
    tag: int = 0
    sender: int = 0
    receiver: int = EVERYONE


class OtherStepError(AgreementError):
    """A message is of another step than the one that was due: two ranks have not called backward equally often."""

    def __init__(self, found: int, due: int) -> None:
        super().__init__(f"step is {found:#x} and {due:#x} was due")
        self.found, self.due = found, due

    def between(self, sender: int, receiver: int) -> AgreementError:
        """Return the error with who has done what: `Step.stamp` holds backwards and, above, optimizer steps."""
        (found_turns, found), (due_turns, due) = (divmod(stamp, 1 << 20) for stamp in (self.found, self.due))
        ahead = (due_turns - found_turns - (due - found)) % (1 << 12)
        first, other = (sender, receiver) if 0 < ahead < 1 << 11 else (receiver, sender)
        return AgreementError(
            f"rank {first} has called backward more often than rank {other} between two optimizer steps: rank {sender} "
            f"is at step {found} after {found_turns} optimizer steps, rank {receiver} at step {due} after {due_turns}.",
            hint="Call backward equally often on every rank, or all but the last one inside model.no_sync().",
        )


class Slot:
    """Room for one message in a byte buffer: views made once, written and read without allocating.

    Header and trailer are written and read on the host. Where the buffer is on a device they have a copy there, the
    payload stays where it is, and its sums are made there: the same bytes, the same checksum. Where only the payload is
    on a device (`staged`), its box brings it to the buffer before `seal` and takes it from there after `open`. The
    payload is not `summed` where the wire has checksums of its own.
    """

    def __init__(
        self, buffer: torch.Tensor, payload_bytes: int, staged: torch.Tensor | None = None, *, summed: bool = True
    ) -> None:
        self.tensor = buffer[: HEADER_BYTES + payload_bytes + TRAILER_BYTES]
        self.payload_bytes = payload_bytes
        self._carried = self.tensor[HEADER_BYTES : HEADER_BYTES + payload_bytes]
        self.payload = self._carried if staged is None else staged[HEADER_BYTES : HEADER_BYTES + payload_bytes]
        self._ends = self.tensor[:HEADER_BYTES], self.tensor[HEADER_BYTES + payload_bytes :]
        self._host = tuple(map(self._on_host, self._ends))
        self._header: NDArray[np.uint32] = self._host[0].numpy().view(np.uint32)
        self._trailer: NDArray[np.uint8] = self._host[1].numpy()
        self._sums = self._summed() if summed else lambda: iter(())

    def seal(self, stamp: Stamp, flags: int = 0, origin: int = 0, detail: int = 0) -> None:
        """Write header and trailer around the payload."""
        header = self._header
        header[0] = MAGIC + PROTOCOL
        header[1] = stamp.codec
        header[2] = stamp.layout
        header[3] = stamp.sequence & 0xFFFFFFFF
        header[4] = stamp.step & 0xFFFFFFFF
        header[5] = self.payload_bytes
        header[_SAID] = flags, origin & 0xFFFFFFFF, detail & 0xFFFFFFFF
        header[_ROUTE] = stamp.tag, stamp.sender, stamp.receiver
        header[_CHECKSUM] = self._checksum()
        self._trailer[:] = np.frombuffer(_mark(stamp), np.uint8)
        self._push()

    def open(self, stamp: Stamp) -> tuple[int, int, int]:
        """Return flags, origin and detail of a received message, or raise if it is not the one that was due."""
        self._pull()
        header = self._header
        if int(header[0]) == MAGIC + PROTOCOL and int(header[6]) & FAILED:
            return FAILED, int(header[7]), 0
        due = (MAGIC + PROTOCOL, stamp.codec, stamp.layout, stamp.sequence, stamp.step, self.payload_bytes)
        for i, wanted in enumerate(due):
            if int(header[i]) != wanted & 0xFFFFFFFF:
                if _FIELDS[i] == "step":
                    raise OtherStepError(int(header[i]), wanted & 0xFFFFFFFF)
                raise AgreementError(f"{_FIELDS[i]} is {int(header[i]):#x} and {wanted & 0xFFFFFFFF:#x} was due")
        if self._trailer.tobytes() != _mark(stamp):
            raise AgreementError(f"fewer than {self.payload_bytes:,} payload bytes arrived")
        found = self._checksum()
        if int(header[_CHECKSUM]) != found:
            due_sum = int(header[_CHECKSUM])
            raise AgreementError(f"bytes changed on the way: checksum {found:#x} and {due_sum:#x} was due")
        route, due_route = tuple(map(int, header[_ROUTE])), (stamp.tag, stamp.sender, stamp.receiver)
        if route != due_route:
            raise AgreementError(f"(tag, sender, receiver) is {route} and {due_route} was due")
        contents = int(header[6]), int(header[7]), int(header[8])
        # A trailer that stays would vouch for a shorter message next time.
        self._trailer[:] = 0
        header[:] = 0
        self._push()
        return contents

    def change(self, word: int, by: int) -> None:
        """Change a word of the header and its checksum with it, as a rank would that means something else."""
        self._header[word] += np.uint32(by)
        self._header[_CHECKSUM] = self._checksum()
        self._push()

    def _checksum(self) -> int:
        found = zlib.crc32(self._header[_CHECKSUM + 1 :].data, zlib.crc32(self._header[:_CHECKSUM].data))
        for part in self._sums():
            found = zlib.crc32(part, found)
        return found

    def _summed(self) -> Callable[[], Iterator[memoryview]]:
        """Return what gives the payload's sums by rows and by columns, and its last bytes as they are."""
        end = self.payload_bytes // (8 * _ROW_WORDS) * 8 * _ROW_WORDS
        rest = self._carried[end:]
        whole = self._carried[:end].view(torch.int64).view(end // (8 * _ROW_WORDS), _ROW_WORDS)
        if self._is_on_host(self._carried):
            rows, last = whole.numpy().view(np.uint64), rest.numpy()

            def on_host() -> Iterator[memoryview]:
                if len(rows):
                    yield np.add.reduce(rows, axis=1).data
                    yield np.add.reduce(rows, axis=0).data
                yield last.data

            return on_host

        def on_device() -> Iterator[memoryview]:
            if len(whole):
                yield whole.sum(1).cpu().numpy().data
                yield whole.sum(0).cpu().numpy().data
            yield rest.cpu().numpy().data

        return on_device

    def _is_on_host(self, part: torch.Tensor) -> bool:
        return part.device.type == "cpu"

    def _on_host(self, end: torch.Tensor) -> torch.Tensor:
        """Return the header or trailer in host memory: itself, where it is there."""
        return end if self._is_on_host(end) else torch.zeros(len(end), dtype=torch.uint8)

    def _push(self) -> None:
        for end, host in zip(self._ends, self._host, strict=True):
            if end is not host:
                end.copy_(host)

    def _pull(self) -> None:
        for end, host in zip(self._ends, self._host, strict=True):
            if end is not host:
                host.copy_(end)


def slot_bytes(payload_bytes: int) -> int:
    """Return the room one message takes in a buffer of several: its parts, rounded up to the alignment."""
    return -(-(HEADER_BYTES + payload_bytes + TRAILER_BYTES) // ALIGNMENT) * ALIGNMENT


class Box:
    """Slots in one buffer, each of the largest one's stride, so that a collective can carry the buffer whole.

    A `staged` box carries its messages in host memory, and has room for their payloads on the device as well.
    """

    def __init__(
        self,
        payload_bytes: list[int],
        largest_bytes: int = 0,
        device: torch.device | None = None,
        *,
        staged: bool = False,
        summed: bool = True,
    ) -> None:
        self.stride = slot_bytes(max(largest_bytes, *payload_bytes))
        size = len(payload_bytes) * self.stride
        pinned = staged and device is not None and device.type == "cuda"
        self.buffer = torch.zeros(size, dtype=torch.uint8, device=None if staged else device, pin_memory=pinned or None)
        self.rooms = torch.split(self.buffer, self.stride)
        there: Iterable[torch.Tensor | None] = [None] * len(payload_bytes)
        self._there = torch.zeros(size, dtype=torch.uint8, device=device) if staged else None
        if self._there is not None:
            there = torch.split(self._there, self.stride)
        self.slots = [Slot(*slot, summed=summed) for slot in zip(self.rooms, payload_bytes, there, strict=True)]

    def __getitem__(self, index: int) -> Slot:
        return self.slots[index]

    def bring(self) -> None:
        """Begin to copy payloads from the device, all at once; who seals waits for the device first."""
        if self._there is not None:
            self.buffer.copy_(self._there, non_blocking=True)

    def take(self) -> None:
        """Begin to copy payloads to the device, all at once, when every message has been opened."""
        if self._there is not None:
            self._there.copy_(self.buffer, non_blocking=True)


def _mark(stamp: Stamp) -> bytes:
    return ((stamp.sequence * 0x9E3779B1 + stamp.step * 0x85EBCA6B + stamp.layout) & 0xFFFFFFFF | 1).to_bytes(
        4, "little"
    )
