"""Programs of others that benchmarks run beside syncline; one that is not installed is named, and the rest measured.

found = simgrid("simgrid_ring.py", 1024, 1 << 30)        # the JSON it prints, or a MissingPeer
"""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PEERS = Path(__file__).resolve().parents[1] / "peers"
PYTHON = "/usr/bin/python3"
"""Debian's own, for which Debian packages SimGrid."""


@dataclass(frozen=True)
class MissingPeer:
    """A peer that was not measured, and what to install."""

    name: str
    package: str

    def __str__(self) -> str:
        return f"{self.name} is not installed (Debian: apt install {self.package}); measured without it"


def simgrid(script: str, *arguments: object) -> dict[str, Any] | MissingPeer:
    """Run one of peers/*.py under SimGrid and return what it prints."""
    if shutil.which(PYTHON) is None or _status(PYTHON, "-c", "import simgrid"):
        return MissingPeer("SimGrid", "python3-simgrid")
    command = [PYTHON, str(PEERS / script), *map(str, arguments)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def ns3() -> MissingPeer | None:
    """Return what a program that uses ns-3 lacks here, or nothing."""
    if shutil.which("g++") is None:
        return MissingPeer("g++, which ns-3 needs,", "g++ libns3-dev")
    if not Path("/usr/include/ns3/core-module.h").exists():
        return MissingPeer("ns-3", "libns3-dev")
    return None


def _status(*command: str) -> int:
    return subprocess.run(command, capture_output=True, check=False).returncode
