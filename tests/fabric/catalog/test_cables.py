"""Cables: which one is chosen for a length, and published bills that their prices reproduce."""

from __future__ import annotations

import csv

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.errors import CatalogError
from syncline.fabric.catalog import (
    Cable,
    LinkType,
    load_catalog,
)

CATALOG = load_catalog()
LINKS = [part for part in CATALOG.parts("link") if isinstance(part, LinkType)]
CABLES = [part for part in CATALOG.parts("cable") if isinstance(part, Cable)]


def network_capex(num_gpus: int, num_uplinks: int) -> float:
    """Connectors and cables: one NDR link of 20 m per GPU to its leaf, uplinks of 30 m."""
    ndr = CATALOG.link("NDR")
    access, uplink = CATALOG.cable_for(ndr, 20), CATALOG.cable_for(ndr, 30)
    assert access.kind == uplink.kind == "multimode"
    return num_gpus * access.price_usd(20) + num_uplinks * uplink.price_usd(30)


SHEET = """num_gpus,num_switches,switches_usd,cables_usd
512,8,288000,675840
1024,48,1728000,2621440
"""
"""H100 Freakonomics spreadsheet (substack.tech-talk-cto.com), Aug 2024: network of 512 and 1,024 H100."""


@pytest.mark.parametrize("row", list(csv.DictReader(SHEET.splitlines())), ids=lambda row: row["num_gpus"])
def test_cable_prices_reproduce_published_bill(row: dict[str, str]) -> None:
    num_gpus, num_switches = int(row["num_gpus"]), int(row["num_switches"])
    # 8 switches x 64 ports are 512 endpoints in one tier; 48 are 32 leaves with 1,024 uplinks and 16 spines.
    num_uplinks = (num_switches * 64 - num_gpus) // 2
    assert network_capex(num_gpus, num_uplinks) == pytest.approx(float(row["cables_usd"]), rel=0.05)
    third_party = CATALOG.switch("FS-NDR-64").price_usd
    assert third_party is not None
    assert num_switches * third_party == float(row["switches_usd"])


def test_published_prices() -> None:
    assert CATALOG.switch("QM9700").price_usd == 50_000
    assert CATALOG.host("dgx-h100").price_usd == CATALOG.host("hgx-h100-8").price_usd == 310_000
    assert CATALOG.host("p5").price_per_hour_usd == 55.04


def test_ndr_cables_by_length() -> None:
    ndr = CATALOG.link("NDR")
    kinds = [CATALOG.cable_for(ndr, length_m).kind for length_m in (1, 3, 5, 6, 50, 51, 2000)]
    assert kinds == ["dac", "dac", "aec", "multimode", "multimode", "single_mode", "single_mode"]


def test_cable_numbers() -> None:
    sr4 = CATALOG.cable("400G SR4")
    assert sr4.price_usd(20) == 2 * 620 + 2 * 20
    assert sr4.power_w == 15.5
    assert sr4.delay_s(20) == pytest.approx(200e-9)


REACH_M = {link.name: max(c.reach_m for c in CABLES if CATALOG.wire(link).family in c.families and
                          c.rate_Bps == CATALOG.cable_for(link, 1.0).rate_Bps) for link in LINKS}  # fmt: skip


@given(link=st.sampled_from(LINKS), a=st.floats(0.1, 1.0), b=st.floats(0.1, 1.0), log=st.booleans())
def test_longer_cable_never_costs_less(link: LinkType, a: float, b: float, log: bool) -> None:
    reach_m = REACH_M[link.name]
    short, long = sorted(reach_m ** (x if log else 1.0) * (1.0 if log else x) for x in (a, b))
    near, far = CATALOG.cable_for(link, short), CATALOG.cable_for(link, long)
    assert near.reach_m >= short
    assert far.reach_m >= long
    assert near.price_usd(short) <= far.price_usd(long)
    assert near.rate_Bps == far.rate_Bps >= link.rate_Bps


def test_no_cable_reaches() -> None:
    with pytest.raises(CatalogError) as caught:
        CATALOG.cable_for(CATALOG.link("NDR"), 5000)
    assert str(caught.value) == (
        "no cable for NDR reaches 5000 m.\n"
        "  The longest is 400G FR4, 2000 m.\n"
        "  Shorten the link, or add a cable under `parts:` (list them with `syncline fabric parts cable`)."
    )
