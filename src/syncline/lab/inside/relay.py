"""A wire with latency: frames that enter one end leave the other after a while. `python -m syncline.lab.inside.relay`.

One process per delayed cable, in a namespace of its own between two veth ends. The kernel's netem would do the same,
but many kernels do not have it.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import time
from collections import deque

from syncline.lab.inside import kernel
from syncline.lab.inside.protocol import Message

_SOL_PACKET = 263
_PACKET_VNET_HDR = 15
_PACKET_IGNORE_OUTGOING = 23
_ETH_P_ALL = 0x0003
_MAX_FRAME_BYTES = 1 << 17
_BUFFER_BYTES = 8 << 20
_BATCH = 64


def main(order: Message) -> None:
    """Carry frames between `left` and `right` of the namespace, each way after its delay in seconds."""
    kernel.die_with_parent()
    kernel.setns(order["namespace"], kernel.NEWNET)
    os.close(order["namespace"])
    Relay(open_end("left"), open_end("right"), order["delay_s"]).run()


def open_end(interface: str) -> socket.socket:
    """Return a socket that sees every frame arriving at an interface and can send any."""
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
    # The virtio header carries checksum and segmentation state: without it half-done checksums arrive broken.
    end.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
    end.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
    end.bind((interface, _ETH_P_ALL))
    return end


class Relay:
    """Two queues of frames with the time at which each is due."""

    def __init__(self, left: socket.socket, right: socket.socket, delay_s: float) -> None:
        self.lanes = ((left, right, deque[tuple[float, bytes]]()), (right, left, deque[tuple[float, bytes]]()))
        self.delay_s = delay_s

    def run(self) -> None:
        """Carry frames for ever."""
        poll = select.epoll()
        for source, _, _ in self.lanes:
            poll.register(source, select.EPOLLIN)
        while True:
            poll.poll(self._patience_s())
            for source, _, queue in self.lanes:
                self._take(source, queue)
            self._deliver()

    def _patience_s(self) -> float:
        due = [queue[0][0] for _, _, queue in self.lanes if queue]
        return max(0.0, min(due) - time.monotonic()) if due else 1.0

    def _take(self, source: socket.socket, queue: deque[tuple[float, bytes]]) -> None:
        for _ in range(_BATCH):
            try:
                frame = source.recv(_MAX_FRAME_BYTES)
            except BlockingIOError:
                return
            except OSError:
                return  # the interface went down
            queue.append((time.monotonic() + self.delay_s, frame))

    def _deliver(self) -> None:
        now = time.monotonic()
        for _, target, queue in self.lanes:
            while queue and queue[0][0] <= now:
                try:
                    target.send(queue[0][1])
                except BlockingIOError:
                    return
                except OSError:
                    pass  # down, or larger than an MTU that was lowered: a real wire would lose it too
                queue.popleft()


if __name__ == "__main__":
    main(json.load(sys.stdin))
