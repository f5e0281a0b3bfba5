"""What each link of a lab really does: rate, delay, and who reaches whom. `python -m syncline.lab.inside.meter`.

Raw frames from one end of a cable to the other, so that every link is measured by itself, whatever lies around it.
"""

from __future__ import annotations

import errno
import json
import os
import select
import socket
import struct
import sys
import time
from statistics import median

from syncline.host.netlink import Netlink
from syncline.lab.inside import kernel
from syncline.lab.inside.protocol import Message

_ETHER_TYPE = 0x88B5  # for local experiments
_ETH_P_ALL = 0x0003
_WARM_UP_S = 0.05
_BATCH_BPS = 62.5e6
_BATCH_FRAMES = 32
_PINGS = 5
_CONNECT_PATIENCE_S = 5.0
_PORT = 7
_DOWN = (errno.ENETDOWN, errno.ENXIO)


class Probe:
    """One direction of one cable: a socket that sends into it, one that hears what comes out, and its counter."""

    def __init__(self, link: Message, frame_bytes: int) -> None:
        self.link = link
        kernel.setns(link["far"], kernel.NEWNET)
        self.counters = Netlink()
        # All protocols: a bridge takes frames away before sockets of a single protocol see them.
        self.hears = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
        self.hears.bind((link["far_interface"], _ETH_P_ALL))
        address = self.hears.getsockname()[4]
        kernel.setns(link["near"], kernel.NEWNET)
        self.sends = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
        self.sends.bind((link["interface"], 0))
        waiting_bytes = max(4 * frame_bytes, min(1 << 20, int(link["rate_Bps"] * 0.02)))
        self.sends.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, waiting_bytes)
        self.header = address + self.sends.getsockname()[4] + struct.pack("!H", _ETHER_TYPE)
        self.frame = self.header + bytes(frame_bytes - len(self.header))

    def arrived(self) -> int:
        """Return the bytes that have come out at the far end."""
        return self.counters.moved()[self.link["far_index"]][0]

    def delay_s(self) -> float:
        """Return the median time of a small frame from one end to the other."""
        return median(self._ping(number) for number in range(_PINGS))

    def _ping(self, number: int) -> float:
        frame = self.header + struct.pack("!I", number) + bytes(46)
        start = time.monotonic()
        until = start + 0.2 + 2 * self.link["delay_s"]
        try:
            self.sends.send(frame)
            while (left := until - time.monotonic()) > 0:
                if select.select([self.hears], [], [], left)[0] and self.hears.recv(64) == frame:
                    return time.monotonic() - start
        except OSError as error:
            if error.errno not in _DOWN:
                raise
        return float("inf")

    def close(self) -> None:
        """Close the sockets."""
        for each in (self.sends, self.hears, self.counters):
            each.close()


def measure(links: list[Message], frame_bytes: int, seconds: float) -> list[Message]:
    """Fill all the links at once and return the rate and delay of each."""
    probes = [Probe(link, frame_bytes) for link in links]
    delays = [probe.delay_s() for probe in probes]
    for probe in probes:
        probe.hears.close()  # from here on only the counter listens
    _fill(probes, _WARM_UP_S + max(link["delay_s"] for link in links))
    before = [(probe.arrived(), time.monotonic()) for probe in probes]
    _fill(probes, seconds)
    after = [(probe.arrived(), time.monotonic()) for probe in probes]
    for probe in probes:
        probe.close()
    rates = [(b[0] - a[0]) / (b[1] - a[1]) for a, b in zip(before, after, strict=True)]
    return [
        {"link": link["link"], "rate_Bps": rate, "delay_s": delay if delay < 1e9 else None}
        for link, rate, delay in zip(links, rates, delays, strict=True)
    ]


def _fill(probes: list[Probe], seconds: float) -> None:
    poll = select.poll()
    by_number = {probe.sends.fileno(): probe for probe in probes}
    for number in by_number:
        poll.register(number, select.POLLOUT)
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        for number, _ in poll.poll(left * 1000):
            probe = by_number[number]
            try:
                for _ in range(_BATCH_FRAMES):  # without a carrier it would take frames for ever
                    probe.sends.send(probe.frame)
            except BlockingIOError:
                pass
            except OSError as error:
                if error.errno not in (errno.ENOBUFS, *_DOWN):
                    raise
                time.sleep(0.001)


def batches(links: list[Message]) -> list[list[Message]]:
    """Split links so that those measured at once do not need more of the machine than it has."""
    result: list[list[Message]] = []
    total = 0.0
    for link in sorted(links, key=lambda each: (each["delay_s"], each["rate_Bps"])):
        if not result or total + link["rate_Bps"] > _BATCH_BPS or len(result[-1]) >= 32:
            result.append([])
            total = 0.0
        result[-1].append(link)
        total += link["rate_Bps"]
    return result


def unreachable(hosts: list[Message]) -> list[tuple[int, int, str]]:
    """Connect every host to every address of every other; returns the pairs that failed."""
    listeners = []
    for host in hosts:
        kernel.setns(host["namespace"], kernel.NEWNET)
        listener = socket.create_server(("0.0.0.0", _PORT), backlog=1024)  # noqa: S104  inside the lab only
        listeners.append(listener)
    failed, waiting = [], {}
    poll = select.poll()
    for i, host in enumerate(hosts):
        kernel.setns(host["namespace"], kernel.NEWNET)
        for j, other in enumerate(hosts):
            for address in other["addresses"] if i != j else ():
                client = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
                if client.connect_ex((address, _PORT)) not in (0, errno.EINPROGRESS):
                    failed.append((i, j, address))
                    client.close()
                    continue
                waiting[client.fileno()] = (client, i, j, address)
                poll.register(client, select.POLLOUT)
    until = time.monotonic() + _CONNECT_PATIENCE_S
    while waiting and (left := until - time.monotonic()) > 0:
        for number, _ in poll.poll(left * 1000):
            client, i, j, address = waiting.pop(number)
            poll.unregister(number)
            if client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                failed.append((i, j, address))
            client.close()
    failed += [(i, j, address) for _, i, j, address in waiting.values()]
    for each in listeners:
        each.close()
    return failed


def main(order: Message) -> None:
    """Measure what the order names and write the results into its file."""
    kernel.die_with_parent()
    failed = unreachable(order["hosts"])
    for batch in batches(order["links"]):
        for row in measure(batch, order["frame_bytes"], order["seconds"]):
            os.write(order["out"], (json.dumps(row) + "\n").encode())
    os.write(order["out"], (json.dumps({"unreachable": failed}) + "\n").encode())


if __name__ == "__main__":
    main(json.load(sys.stdin))
