"""Labs to test with, and whether this machine can make any."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from syncline.errors import LabError
from syncline.fabric import Fabric, load
from syncline.lab import Lab

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def example(name: str) -> Fabric:
    """Return one of the fabrics of the guide."""
    return load(EXAMPLES / f"lab-{name}.yaml")


PACKAGES = {"ip": "iproute2", "tc": "iproute2", "nft": "nftables", "setpriv": "util-linux", "unshare": "util-linux"}


def missing(*programs: str) -> str:
    """Return which of the programs are not here and what to install, or nothing."""
    found = [name for name in programs if shutil.which(name) is None]
    return "; ".join(f"{name} is not installed (Debian: {PACKAGES.get(name, Path(name).name)})" for name in found)


def needed(*programs: str) -> None:
    """Skip where a program is not installed, naming its package."""
    if reason := missing(*programs):
        pytest.skip(reason)


def why_no_lab() -> str:
    """Return why no lab can be made here, or nothing."""
    try:
        with Lab(example("flat"), hosts=2):
            return ""
    except LabError as error:
        return str(error)


@pytest.fixture(scope="session")
def namespaces() -> None:
    """Skip where labs cannot be made."""
    if reason := why_no_lab():
        pytest.skip(reason)


@pytest.fixture(scope="module")
def flat(namespaces: None) -> Iterator[Lab]:
    """Four hosts on a bridge at 50 Mb/s: slow enough to be exact on a busy machine."""
    with Lab(example("flat"), scale=0.05) as lab:
        yield lab


@pytest.fixture(scope="module")
def leaf_spine(namespaces: None) -> Iterator[Lab]:
    """Eight hosts under two leaves and two spines, routed."""
    with Lab(example("leaf-spine"), scale=0.05) as lab:
        yield lab


@pytest.fixture(scope="module")
def two_sites(namespaces: None) -> Iterator[Lab]:
    """Two sites with a trunk of 5 ms."""
    with Lab(example("two-sites"), scale=0.2) as lab:
        yield lab


@pytest.fixture(scope="module")
def two_rails(namespaces: None) -> Iterator[Lab]:
    """Four hosts with two NICs on two rails."""
    with Lab(example("two-rails"), scale=0.05) as lab:
        yield lab
