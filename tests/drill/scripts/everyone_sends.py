"""Every host sends to every other over TCP, so that loss shows in its counters. Arguments: addresses by rank."""

import os
import socket
import sys
import threading
import time

PORT = 6000
SENT_BYTES = 2_000_000


def drain(stream: socket.socket) -> None:
    """Take what comes until the sender is done."""
    with stream:
        while stream.recv(1 << 18):
            pass


def send(address: str, until_s: float) -> None:
    """Send to a host, as soon as it listens; one that cannot be reached is left alone."""
    while time.monotonic() < until_s:
        try:
            with socket.create_connection((address, PORT), timeout=2.0) as stream:
                stream.sendall(bytes(SENT_BYTES))
                stream.shutdown(socket.SHUT_WR)
                stream.recv(1)
            return
        except ConnectionRefusedError:
            time.sleep(0.05)
        except OSError:
            return


def main(rank: int, addresses: list[str], limit_s: float = 8.0) -> None:
    """Serve all others and send to all others, side by side."""
    until_s = time.monotonic() + limit_s
    server = socket.create_server(("", PORT))

    def serve() -> None:
        while True:
            threading.Thread(target=drain, args=(server.accept()[0],), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    others = [address for at, address in enumerate(addresses) if at != rank]
    senders = [threading.Thread(target=send, args=(address, until_s)) for address in others]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    time.sleep(0.5)  # the last of the others may still send


if __name__ == "__main__":
    main(int(os.environ["RANK"]), sys.argv[1:])
