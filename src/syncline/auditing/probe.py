"""Talk to the other hosts: does each answer, to small packets and to packets of the interface's full size?

    probe(Path("/shared/doors"), "h3", "10.0.0.4", 9000, num_hosts=8)      # {"h0": Lost(small=0.0, large=1.0), ...}

Hosts meet through files in a shared folder, and then exchange packets (`host.packets`).
"""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

from syncline.errors import FileError
from syncline.host.packets import PacketLoss, echo_until, exchange, open_door

MEET_S = 20.0
STALE_S = 60.0


def probe(folder: Path, host: str, address: str, mtu_bytes: int, num_hosts: int) -> dict[str, PacketLoss]:
    """Return what is lost to and from every other host that came to the folder within `MEET_S`."""
    with open_door(address) as door:
        doors = _meet(folder, host, door, num_hosts)
        lost = exchange(door, {name: at for name, at in doors.items() if name != host}, mtu_bytes)
        _say(folder, f"{host}.done", {})
        echo_until(door, lambda: len(_fresh(folder, host, "done")) >= len(doors), MEET_S)
    return lost


def _meet(folder: Path, host: str, door: socket.socket, num_hosts: int) -> dict[str, tuple[str, int]]:
    (folder / f"{host}.done").unlink(missing_ok=True)
    _say(folder, f"{host}.door", {"host": host, "at": door.getsockname()})
    echo_until(door, lambda: len(_fresh(folder, host, "door")) >= num_hosts, MEET_S)
    found = {}
    for path in _fresh(folder, host, "door"):
        try:
            door_file = json.loads(path.read_text("utf-8"))
            found[str(door_file["host"])] = (str(door_file["at"][0]), int(door_file["at"][1]))
        except (OSError, ValueError, KeyError, TypeError, IndexError):
            continue  # half a file of a host that is gone
    return found


def _fresh(folder: Path, host: str, suffix: str) -> list[Path]:
    """Return the files of this run: those of an earlier one in the same folder are older than our own door."""
    try:
        since_s = (folder / f"{host}.door").stat().st_mtime - STALE_S
        return sorted(path for path in folder.glob(f"*.{suffix}") if path.stat().st_mtime >= since_s)
    except OSError:
        return []


def _say(folder: Path, name: str, what: dict[str, object]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / f".{name}.{os.getpid()}"
        part.write_text(json.dumps(what), "utf-8")
        part.replace(folder / name)
    except OSError as error:
        raise FileError(
            f'cannot write in "{folder}": {error.strerror}.', hint="Name a folder all hosts share."
        ) from None
