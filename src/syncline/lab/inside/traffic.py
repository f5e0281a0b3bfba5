"""Somebody else's flow: UDP from one host to another at a steady rate. `python -m syncline.lab.inside.traffic`."""

from __future__ import annotations

import json
import socket
import sys
import time

from syncline.lab.inside import kernel
from syncline.lab.inside.protocol import Message

_HEADER_BYTES = 42  # Ethernet, IP, UDP
_PORT = 9
_LONGEST_NAP_S = 0.002


def main(order: Message) -> None:
    """Send from one namespace to an address in another, counted as frames on the wire, until killed."""
    address = order["address"]
    kernel.die_with_parent()
    kernel.setns(order["there"], kernel.NEWNET)
    # Nobody reads it: the kernel drops what does not fit. Without it every packet would be answered by an error.
    sink = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sink.bind((address, _PORT))
    kernel.setns(order["here"], kernel.NEWNET)
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.connect((address, _PORT))
    send(sender, order["rate_Bps"], order["mtu_bytes"])


def send(sender: socket.socket, rate_Bps: float, mtu_bytes: int) -> None:
    """Send packets of a full MTU at a rate, catching up after a late wake-up but never by more than 10 ms."""
    payload = bytes(mtu_bytes - 28)
    step_s = (len(payload) + _HEADER_BYTES) / rate_Bps
    due = time.monotonic()
    while True:
        now = time.monotonic()
        if now < due:
            time.sleep(min(due - now, _LONGEST_NAP_S))
            continue
        due = max(due + step_s, now - 0.01)
        try:
            sender.send(payload)
        except OSError:
            time.sleep(_LONGEST_NAP_S)  # the link is down, or its queue is full


if __name__ == "__main__":
    main(json.load(sys.stdin))
