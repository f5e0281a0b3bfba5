"""Names of faults that stand for many, and how they are counted."""

from __future__ import annotations

import pytest

from syncline.errors import SynclineError
from syncline.fabric import ClusterSpec, build
from syncline.fabric.fabric import Fabric
from syncline.fabric.faults import fault_words
from syncline.fabric.inventory import inventory
from syncline.report.text.fabric import inventory_lines


def made(*faults: dict[str, object]) -> Fabric:
    told = {"hosts": 4, "host": "dgx-h100", "network": "rail-optimized NDR", "faults": list(faults)}
    return build(ClusterSpec.model_validate(told))


@pytest.mark.parametrize(
    "name", ["host-[00-03]/nic-0", "host-*/nic-0", "host-0?/nic-0", "host-[00-01]/nic-0,host-[02,03]/nic-0"]
)
def test_one_line_for_many_is_as_many_lines(name: str) -> None:
    one = made({"device": name})
    each = made(*(dict[str, object](device=f"host-0{host}/nic-0") for host in range(4)))
    assert one.links.up.tolist() == each.links.up.tolist() and not one.links.up.all()
    assert fault_words(one, one.spec.faults) == fault_words(each, each.spec.faults) == "4 NICs down"
    assert any(line.split() == ["faults", "4", "NICs", "down"] for line in inventory_lines(inventory(one)))


def test_ends_of_links_and_slow_parts_are_counted() -> None:
    slow = made({"link": "host-*/nic-0 <-> leaf-00", "rate": "100Gbps"}, {"device": "host-00/nic-[1-2]"})
    assert fault_words(slow, slow.spec.faults) == "4 cables slow, 2 NICs down"


def test_what_fits_nothing_is_refused() -> None:
    with pytest.raises(SynclineError, match=r'has no device like "host-\*"'):
        made({"device": "host-*"})
    with pytest.raises(SynclineError, match=r"these names match more"):
        made({"link": "host-*/nic-0 <-> leaf-00", "which": 0})
