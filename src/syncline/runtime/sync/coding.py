"""Messages in a codec: every chunk is encoded by itself, so that whoever passes it on passes on the same bytes.

Who encodes, who decodes and what is summed:
- a chunk that is sent on unchanged since it came (or since it was last encoded) travels in the bytes it has: a ring's
  all-gather encodes each chunk once, and every rank ends with the same bits;
- whoever encodes a chunk that others copy keeps what they will decode, so that it agrees with them bit for bit; so do
  partners that add each other's chunk in the same round;
- what is to be added is decoded and added in one pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from syncline.codec.codec import RAW, Codec
from syncline.codec.dense import Dense
from syncline.codec.names import dense
from syncline.errors import ExecutionError
from syncline.runtime.execute.lane import Lane, LaneRound, Message

Bytes = NDArray[np.uint8]
NOT_CODED = (RAW.name, "fp32")


@dataclass(eq=False)
class CodedRow:
    """One chunk in its codec: the numbers, their bytes in the message, and how the bytes are had."""

    values: NDArray[np.float32]
    payload: Bytes
    source: Bytes | None = None
    keep: bool = False


@dataclass(eq=False)
class CodedMessage(Message):
    """A message whose wire holds the encoded rows one after the other."""

    codec: Dense | None = None
    coded: tuple[CodedRow, ...] = ()

    def pack(self) -> None:
        """Encode the rows, or copy the bytes they already have."""
        assert self.codec is not None
        for row in self.coded:
            if row.source is not None:
                row.payload[:] = row.source
                continue
            self.codec.encode(row.values, row.payload)
            if row.keep:
                self.codec.decode(row.payload, row.values)

    def unpack(self) -> None:
        """Decode the rows to their place, or add them there."""
        assert self.codec is not None
        for row in self.coded:
            self.codec.decode(row.payload, row.values, add=self.reduce)


def codec_of(codec: Codec, buffer: torch.Tensor) -> Dense | None:
    """Return the scheme of a step's codec, or None when bytes go as they are."""
    if codec.name in NOT_CODED:
        return None
    if buffer.dtype != torch.float32 or buffer.device.type != "cpu":
        raise ExecutionError(
            f'codec "{codec.name}" encodes float32 in host memory; this buffer holds {buffer.dtype} on '
            f"{buffer.device.type}.",
            hint="Copy the buffer to the host, or use no codec.",
        )
    return dense(codec.name)


def in_codec(lane: Lane, codec: Dense) -> Lane:
    """Return the lane with every message in the codec; which bytes are passed on is settled here, once."""
    known: dict[int, Bytes] = {}
    rounds = []
    for entry in lane.rounds:
        added = {row.offset for message in entry.receives if message.reduce for row in message.rows}
        sends = tuple(_outgoing(message, codec, known, added) for message in entry.sends)
        receives = tuple(_coded(message, codec) for message in entry.receives)
        for message in receives:
            for row, coded in zip(message.rows, message.coded, strict=True):
                if message.reduce:
                    known.pop(row.offset, None)
                else:
                    known[row.offset] = coded.payload
        rounds.append(LaneRound(entry.number, sends, receives))
    return Lane(lane.vertex, lane.strand, tuple(rounds))


def _outgoing(message: Message, codec: Dense, known: dict[int, Bytes], added: set[int]) -> CodedMessage:
    out = _coded(message, codec)
    for row, coded in zip(message.rows, out.coded, strict=True):
        coded.source = known.get(row.offset)
        if coded.source is None:
            coded.keep = not message.reduce or row.offset in added
            if coded.keep:
                known[row.offset] = coded.payload
    return out


def _coded(message: Message, codec: Dense) -> CodedMessage:
    sizes = [codec.wire_bytes(row.data.numel()) for row in message.rows]
    wire = torch.empty(sum(sizes), dtype=torch.uint8)
    payloads: Any = np.split(wire.numpy(), np.cumsum(sizes)[:-1])
    rows = tuple(CodedRow(row.data.numpy(), part) for row, part in zip(message.rows, payloads, strict=True))
    return CodedMessage(
        message.peer, message.process, message.tag, message.reduce, message.rows, wire, packed=True,
        codec=codec, coded=rows,
    )  # fmt: skip
