"""What a port sent as a capture for Wireshark: RoCEv2, or TCP where the transport is TCP's.

write_pcap("leaf-00.pcap", outcome)      # of a run with Watching(..., capture=(link,))

Frames hold their headers only (the payload is nothing); times are to the nanosecond. Addresses are 10.0.0.0 and the
number of the endpoint, connections are queue pairs (TCP: ports), a mark is the IP header's, sequence numbers are
packets (TCP: bytes).
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

import numpy as np

from syncline.describe.files import atomic
from syncline.errors import SimulationError
from syncline.sim.packet.outcome import Outcome

_MAGIC_NS = 0xA1B23C4D
_ETHERNET = 1
_ROCE_PORT = 4791
_DATA, _NACK = 0, 2
_MARKED = 1
_TCP_KINDS = ("dctcp", "cubic")


def write_pcap(path: str | os.PathLike[str], outcome: Outcome, link: int | None = None) -> int:
    """Write the packets that captured links sent (or one of them) and return how many."""
    rows = outcome.captured
    if not rows:
        raise SimulationError("nothing was captured.", hint="Give Watching(..., capture=(link,)).")
    pick = np.arange(len(rows["time_ps"]))
    if link is not None:
        pick = pick[rows["port"] == outcome.network.port_of_link[link]]
    pick = pick[np.argsort(rows["time_ps"][pick], kind="stable")]
    tcp = [each.kind in _TCP_KINDS for each in outcome.options.sets]
    connections = outcome.posted.columns["connections"]
    source = -1 - outcome.network.src[connections["port"]]
    payload = outcome.options.payload_bytes
    with atomic(Path(path)) as stream:
        stream.write(struct.pack("<IHHiIII", _MAGIC_NS, 2, 4, 0, 0, 262144, _ETHERNET))
        for i in pick.tolist():
            flow, kind = int(rows["flow"][i]), int(rows["kind"][i])
            ends = int(source[flow]), int(connections["dst"][flow])
            here, there = ends if kind == _DATA else ends[::-1]
            marked = bool(int(rows["flags"][i]) & _MARKED)
            body = int(rows["payload_bytes"][i])
            if tcp[int(connections["profile"][flow])]:
                inner = _tcp(flow, kind, int(rows["seq"][i]) * payload, int(rows["ack"][i]) * payload)
                head = _ip(here, there, 6, marked, len(inner) + body) + inner
            else:
                inner = _bth(flow, kind, int(rows["seq"][i]), int(rows["ack"][i]))
                udp = struct.pack(">HHHH", 49152 + flow % 16384, _ROCE_PORT, 8 + len(inner) + body + 4, 0)
                head = _ip(here, there, 17, marked, len(udp) + len(inner) + body + 4) + udp + inner
            frame = _mac(there) + _mac(here) + b"\x08\x00" + head
            seconds, rest = divmod(int(rows["time_ps"][i]), 10**12)
            whole = max(len(frame), int(rows["wire_bytes"][i]))
            stream.write(struct.pack("<IIII", seconds, rest // 1000, len(frame), whole) + frame)
    return len(pick)


def _mac(endpoint: int) -> bytes:
    return b"\x02\x00" + struct.pack(">I", endpoint)


def _ip(source: int, target: int, protocol: int, marked: bool, length: int) -> bytes:
    """Return an IPv4 header with its checksum; ECT(0), or CE where the packet is marked."""
    head = struct.pack(
        ">BBHHHBBHII", 0x45, 0x03 if marked else 0x02, min(20 + length, 65535), 0, 0x4000, 64, protocol, 0,
        0x0A000000 + source, 0x0A000000 + target,
    )  # fmt: skip
    total = sum(struct.unpack(">10H", head))
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    return head[:10] + struct.pack(">H", ~total & 0xFFFF) + head[12:]


def _bth(flow: int, kind: int, seq: int, ack: int) -> bytes:
    """Return InfiniBand's base transport header, and what an acknowledgement adds."""
    pair = (flow + 2) & 0xFFFFFF
    if kind == _DATA:
        return struct.pack(">BBHII", 0x01, 0x40, 0xFFFF, pair, seq & 0xFFFFFF)
    if kind == 4:  # congestion notification
        return struct.pack(">BBHII", 0x81, 0x40, 0xFFFF, pair, 0) + bytes(16)
    syndrome = 0x60 if kind == _NACK else 0x1F
    return struct.pack(">BBHII", 0x11, 0x40, 0xFFFF, pair, (ack - 1) & 0xFFFFFF) + struct.pack(">I", syndrome << 24)


def _tcp(flow: int, kind: int, seq: int, ack: int) -> bytes:
    ports = (1024 + flow % 60000, 5001)
    if kind == _DATA:
        return struct.pack(">HHIIHHHH", *ports, seq & 0xFFFFFFFF, 1, 0x5018, 65535, 0, 0)
    return struct.pack(">HHIIHHHH", *ports[::-1], 1, ack & 0xFFFFFFFF, 0x5010, 65535, 0, 0)
