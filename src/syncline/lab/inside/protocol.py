"""Messages between a lab and those who drive it: JSON with a length before it, and open files beside it.

One socket carries requests `{"id", "do", ...}`, answers `{"id", "ok" | "error"}` and events `{"event", ...}`.
"""

from __future__ import annotations

import array
import json
import os
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any

_LENGTH = struct.Struct("<II")  # bytes of JSON that follow, number of files that came along
MAX_FILES = 200
MAX_MESSAGE_BYTES = 64 << 20

Message = dict[str, Any]
"""A request, an answer or an event: one JSON object on the control socket."""


def send(channel: socket.socket, message: Mapping[str, Any], files: Sequence[int] = ()) -> None:
    """Send one message, with open file descriptors the receiver gets copies of."""
    body = json.dumps(message).encode()
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else []
    # The files travel with the header: a short fixed write that never splits.
    channel.sendmsg([_LENGTH.pack(len(body), len(files))], ancillary)
    channel.sendall(body)


def receive(channel: socket.socket) -> tuple[Message, list[int]]:
    """Receive one message and the files that came with it; EOFError when the other side is gone."""
    header = b""
    files: list[int] = []
    while len(header) < _LENGTH.size:
        part, more = _receive_some(channel, _LENGTH.size - len(header))
        header, files = header + part, files + more
    length, num_files = _LENGTH.unpack(header)
    if length > MAX_MESSAGE_BYTES or len(files) != num_files:
        for file in files:
            os.close(file)
        raise EOFError("not a message")
    body = bytearray()
    while len(body) < length:
        part = channel.recv(min(1 << 20, length - len(body)))
        if not part:
            raise EOFError
        body += part
    message: Message = json.loads(body)
    return message, files


def peer_uid(channel: socket.socket) -> int:
    """Return the user at the other end of a Unix socket, as this user namespace numbers users."""
    _, uid, _ = struct.unpack("iII", channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(uid)


def _receive_some(channel: socket.socket, num_bytes: int) -> tuple[bytes, list[int]]:
    size = socket.CMSG_SPACE(MAX_FILES * array.array("i").itemsize)
    part, ancillary, _, _ = channel.recvmsg(num_bytes, size, socket.MSG_CMSG_CLOEXEC)
    files = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            files.frombytes(data[: len(data) - len(data) % files.itemsize])
    if not part:
        raise EOFError
    return part, files.tolist()
