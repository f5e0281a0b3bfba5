"""Racks: those sold as one, those filled box by box, and that every verb counts the same ones."""

from __future__ import annotations

from collections import Counter

import pytest

from syncline.designing.choice import FabricChoice, space
from syncline.designing.point import DesignSearch
from syncline.designing.search import Designer
from syncline.errors import UsageError
from syncline.fabric import Fabric
from syncline.fabric.bill import bill
from syncline.fabric.fabric import Tier
from syncline.fabric.load import load
from syncline.install.installation import install
from syncline.install.rack import Floor, floor, shares_racks, stand
from syncline.install.room import Room
from syncline.planning.cost.assumptions import Assumptions
from syncline.planning.cost.owning import own
from syncline.report.picture.elevation import elevations_svg

PRESETS = (
    "a3-mega", "dgx-a100-superpod", "dgx-h100-superpod-1su", "fat-tree-1024", "gb200-nvl72-pod", "gb300-nvl72-pod",
    "h100-64-rail", "jean-zay", "old-10gbe", "polaris", "tpu-v4-pod", "tpu-v5p-pod", "two-sites-wan",
)  # fmt: skip
WRITTEN: dict[str, dict[str, object]] = {
    "mi300x": {"hosts": 24, "host": "mi300x-8", "network": "leaf-spine 400GbE"},
    "b200": {"hosts": 9, "host": "dgx-b200", "network": "rail-optimized NDR"},
    "torus": {
        "hosts": 16, "host": "dgx-h100", "network": {"topology": "torus", "shape": "4x4", "of": "hosts", "link": "NDR"},
    },
    "part of an NVL72": {"hosts": 10, "host": "gb200-nvl72", "network": "rail-optimized NDR"},
    "trays and hosts": {
        "hosts": [{"host": "gb200-nvl72", "count": 36}, {"host": {"gpu": "H100", "gpus": 4, "nics": 4}, "count": 8}],
        "network": "leaf-spine NDR",
    },
}  # fmt: skip


def nvl72(racks: int) -> Fabric:
    return load({"hosts": 18 * racks, "host": "gb200-nvl72", "network": "rail-optimized NDR"})


@pytest.fixture(scope="module")
def sixteen() -> Floor:
    return floor(nvl72(16))


@pytest.mark.parametrize("name", [*PRESETS, *WRITTEN])
def test_all_verbs_count_the_same_racks_and_watts(name: str) -> None:
    fabric = load(WRITTEN.get(name, name))
    stood, owned = floor(fabric), own(fabric, Assumptions(host_price_usd=1.0))
    assert (owned.num_racks, owned.whole_racks) == (len(stood.racks), stood.num_sold)
    assert sum(rack.power_w for rack in stood.racks) == pytest.approx(owned.rated_power_w)
    assert owned.rated_power_w == pytest.approx(bill(fabric).power_w)
    room = stood.room
    for rack in stood.racks:
        assert rack.used_u <= room.rack_u and rack.weight_kg <= room.rack_weight_kg
        assert rack.sold_as or rack.power_w <= room.filled_power_w
    here = [place.name for rack in stood.racks for place in rack.places]
    assert len(set(here)) == len(here)
    assert set(fabric.host_names) | {fabric.device_name(int(d)) for d in fabric.switches} <= set(here)


def test_a_design_counts_them_too() -> None:
    choice = FabricChoice("gb200-nvl72", 36, "ConnectX-7", 4, "NDR", "rail-optimized", 1.0, "QM9700")
    point, fabric = Designer([])._priced(choice, DesignSearch()), choice.build()
    assert point is not None
    assert point.racks == stand(fabric).num_racks
    assert point.power_w == pytest.approx(bill(fabric).power_w)


def test_copper_is_designed_only_where_leaf_and_hosts_share_a_rack() -> None:
    def choice(host: str) -> FabricChoice:
        return FabricChoice(host, 12, "ConnectX-7", 4, "NDR", "fat-tree", 2.0, "QM9700", copper=True)

    assert [choice(host).rack_hosts for host in ("dgx-a100", "dgx-h100", "dgx-b200")] == [4, 4, 3]
    assert all(shares_racks(choice(host).build()) for host in ("dgx-a100", "dgx-h100", "dgx-b200"))
    assert not shares_racks(choice("gb200-nvl72").build())
    assert not any(one.copper for one in space(["gb200-nvl72"], [144], ["NDR"]))
    lengths = {row.kind for row in install(choice("dgx-b200").build()).cables if row.wire.tier is Tier.ACCESS}
    assert lengths == {"dac"}


def test_sixteen_nvl72_are_sixteen_racks_and_two_for_the_network(sixteen: Floor) -> None:
    # By hand: 18 trays of 6,700 W and 72 modules of 7.75 W; 36 leaves of 747 W with 64 modules, 32 spines with 36.
    assert Counter(round(rack.power_w) for rack in sixteen.racks) == {121_158: 16, 36 * 1_243: 1, 32 * 1_026: 1}
    assert sixteen.num_sold == 16
    assert {rack.weight_kg for rack in sixteen.racks if rack.sold_as} == {1_360}
    network = [number for number, rack in enumerate(sixteen.racks) if not rack.sold_as]
    assert network == [8, 9]  # amid the racks they serve


def test_the_trays_of_an_nvl72_stand_around_its_switches(sixteen: Floor) -> None:
    parts = [place.body.part for place in sixteen.racks[0].places]
    assert parts == [
        *["power shelf"] * 4, *["gb200-nvl72"] * 8, *["NVLink switch tray"] * 9, *["gb200-nvl72"] * 10,
        *["power shelf"] * 4,
    ]  # fmt: skip
    drawn = elevations_svg(install(nvl72(1)))
    assert drawn.count(">NVLink-switch-tray-") == 9 and ">host-17<" in drawn
    assert "121.2 kW, as sold" in drawn


def test_a_room_that_cannot_feed_a_rack_as_sold_is_told_so() -> None:
    with pytest.raises(
        UsageError, match=r"gb200-nvl72 is sold as one and needs 121\.2 kW; this room's racks take 60 kW"
    ):
        stand(nvl72(1), Room(rack_power_w=60e3))
    with pytest.raises(UsageError, match=r"needs 121\.2 kW; this room's racks take 100 kW"):
        own(nvl72(1), Assumptions(rack_kW=100))
    with pytest.raises(UsageError, match=r"needs 48U; this room's racks take 42U"):
        stand(nvl72(1), Room(rack_u=42))
    with pytest.raises(UsageError, match=r"needs 1,360 kg; this room's racks take 1,000 kg"):
        stand(nvl72(1), Room(rack_weight_kg=1_000))
    with pytest.raises(UsageError, match=r"--rack-power must be positive, got -1\."):
        Room(rack_power_w=-1_000)
    assert stand(nvl72(1), Room(rack_power_w=132e3)).num_sold == 1


def test_a_domain_that_is_not_full_is_still_a_rack() -> None:
    racks = [rack for rack in floor(load(WRITTEN["part of an NVL72"])).racks if rack.sold_as]
    assert [Counter(p.body.part for p in rack.places)["gb200-nvl72"] for rack in racks] == [10]
    assert racks[0].power_w == pytest.approx(10 * (6_700 + 4 * 7.75))


def test_sites_are_rooms_of_their_own() -> None:
    fabric = load("two-sites-wan")
    stood = floor(fabric)
    site = dict(zip(fabric.host_names, fabric.site_of_host.tolist(), strict=True)) | {
        fabric.device_name(int(device)): int(fabric.devices.site[device]) for device in fabric.switches
    }
    assert all(len({site[place.name] for place in rack.places}) == 1 for rack in stood.racks)
    switches = {fabric.device_name(int(device)) for device in fabric.switches}
    rows = [row for row in install(fabric).cables if {end[2] for end in row.ends} <= switches]
    between = [row for row in rows if site[row.ends[0][2]] != site[row.ends[1][2]]]
    assert between and {(row.part, row.length_m) for row in between} == {("line between sites", 0)}
    assert "line between sites" not in {row.part for row in rows if row not in between}
