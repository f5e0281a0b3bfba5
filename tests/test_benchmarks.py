"""Benchmarks: a peer that is not installed is named, and what `make fresh` hands into a bare tree."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import fresh
import peer


def test_a_missing_peer_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer, "PYTHON", "/no/such/python")
    found = peer.simgrid("simgrid_ring.py", 4, 1024)
    assert str(found) == "SimGrid is not installed (Debian: apt install python3-simgrid); measured without it"
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert "g++ libns3-dev" in str(peer.ns3())


def test_a_bare_tree_gets_the_packages_that_newcomers_are_told_to_install() -> None:
    assert {"git", "make", "g++", "python3-venv", "iproute2", "nftables", "fonts-dejavu-core"} <= set(fresh.packages())


def test_pip_is_set_inside_as_it_is_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wheels, index = tmp_path / "wheels", tmp_path / "index" / "simple"
    wheels.mkdir()
    index.mkdir(parents=True)
    (tmp_path / "pip.conf").write_text(f"[global]\nextra-index-url =\n  file://{index}\ntimeout = 5\n")
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setenv("PIP_TIMEOUT", "9")
    found = fresh.pip_settings()
    assert found["PIP_EXTRA_INDEX_URL"] == f"file://{index}"
    assert found["PIP_TIMEOUT"] == "9", "a variable wins over a file"
    assert "PIP_CONFIG_FILE" not in found
    assert {str(wheels), str(index.parent)} <= set(fresh.places(found))
