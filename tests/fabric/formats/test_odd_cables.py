"""Import asks which hosts hold GPUs, and says which cables run otherwise than the others."""

from __future__ import annotations

import pytest

from syncline.errors import UsageError
from syncline.fabric.formats.cabling import Cabling, FoundCable, Plug, cabling_cluster, odd_links


def _cabling(storage: int = 2) -> Cabling:
    hosts = [f"gpu{i:02d}" for i in range(16)] + [f"store{i}" for i in range(storage)]
    cables = [FoundCable(Plug(host, "1"), Plug(f"leaf-{i % 4}", str(i)), "NDR") for i, host in enumerate(hosts)]
    uplinks = [(leaf, spine, n) for leaf in range(4) for spine in range(2) for n in range(6)]
    cables += [
        FoundCable(Plug(f"leaf-{leaf}", str(40 + 6 * spine + n)), Plug(f"spine-{spine}", str(6 * leaf + n)),
                   None if (leaf, spine, n) == (3, 1, 2) else "NDR", 2e9 if (leaf, spine, n) == (3, 1, 2) else None)
        for leaf, spine, n in uplinks
    ]  # fmt: skip
    switches = {f"leaf-{i}": "" for i in range(4)} | {f"spine-{i}": "" for i in range(2)}
    return Cabling(tuple(hosts), switches, tuple(cables), "found.txt")


def test_one_slow_uplink_among_48_is_named() -> None:
    (note,) = odd_links(_cabling())
    assert note == "odd link: 1 of 48 cables between switches run otherwise than NDR: leaf-3:48 - spine-1:20 (16 Gb/s)"
    assert "odd link" in cabling_cluster(_cabling(), "8 x H100", name="c").notes


def test_only_hosts_that_are_named_hold_gpus() -> None:
    spec = cabling_cluster(_cabling(), "gpu*=8 x H100", name="c")
    assert sum(len(group.names or ()) for group in spec.hosts) == 16
    assert "2 hosts that are not called gpu* are left out" in spec.notes


def test_hosts_of_several_kinds_are_asked_about() -> None:
    notes = cabling_cluster(_cabling(), "8 x H100", name="c").notes
    assert "hosts of several kinds by name (16 gpu, 2 store)" in notes
    assert "several kinds" not in cabling_cluster(_cabling(0), "8 x H100", name="c").notes


def test_a_pattern_that_fits_none_says_how_hosts_are_called() -> None:
    with pytest.raises(UsageError, match='no host is called like "dgx'):
        cabling_cluster(_cabling(), "dgx*=8 x H100", name="c")
