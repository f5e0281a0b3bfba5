from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.describe.plain import plain
from syncline.errors import CostError
from syncline.fabric import ClusterSpec, Fabric, build, load
from syncline.fabric.bill import bill
from syncline.planning.cost.assumptions import Assumptions
from syncline.planning.cost.owning import HOURS_PER_YEAR, Owning, annuity, own


def test_the_capital_is_the_bill(rail: Fabric, owned: Owning) -> None:
    bought = bill(rail)
    assert owned.capital_usd == bought.price_usd
    assert owned.network_usd == bought.network_price_usd
    assert owned.rated_power_w == pytest.approx(bought.power_w)
    assert owned.nics_usd == 64 * 8 * 1700  # ConnectX-7 in the parts catalogue


def test_each_line_by_hand(owned: Owning) -> None:
    yearly = owned.yearly()
    assert yearly["hosts"] == 64 * 310_000 / 4
    assert yearly["network"] == owned.network_usd / 4
    assert yearly["maintenance"] == pytest.approx(0.05 * owned.capital_usd)
    assert yearly["people"] == 200_000
    mean_w = owned.network_power_w + owned.host_power_w * (0.25 + (0.76 - 0.25) * 0.7)
    assert yearly["power"] == pytest.approx(mean_w / 1e3 * 1.25 * HOURS_PER_YEAR * 0.08)
    assert yearly["facility"] == pytest.approx(686.6 * 4900 / 15)
    assert yearly["financing"] == yearly["racks"] == 0
    assert owned.num_racks == 17  # 64 hosts, four a rack with their leaves, and the spines


def test_a_used_hour_costs_more_than_an_installed_one(owned: Owning) -> None:
    assert owned.usd_per_gpu_hour * 0.7 == pytest.approx(owned.usd_per_installed_gpu_hour)
    assert owned.usd_per_gpu_hour * 512 * HOURS_PER_YEAR * 0.7 == pytest.approx(owned.usd_per_year)


def test_colocation_pays_for_racks_instead_of_a_building(rail: Fabric) -> None:
    yearly = own(rail, Assumptions(facility_usd_per_kW=0, rack_usd_per_month=5000)).yearly()
    assert (yearly["facility"], yearly["racks"]) == (0, 17 * 60_000)


@pytest.mark.parametrize("resale", [0.0, 0.2])
def test_financing_is_what_a_loan_costs_beyond_what_wears_off(rail: Fabric, resale: float) -> None:
    owned = own(rail, Assumptions(years=4, financing_rate=0.08, resale=resale))
    owed, payment = 1.0, (1 - resale / 1.08**4) * 0.08 / (1 - 1.08**-4)
    for _ in range(4):
        owed = owed * 1.08 - payment
    assert owed == pytest.approx(resale), "the sale pays the rest back"
    assert owned.yearly()["financing"] == pytest.approx(owned.capital_usd * (payment - (1 - resale) / 4))


def test_an_annuity_repays_its_principal() -> None:
    payment, owed = annuity(5, 0.08), 1.0
    for _ in range(5):
        owed = owed * 1.08 - payment
    assert owed == pytest.approx(0, abs=1e-12)
    assert annuity(4, 0) == 0.25
    assert annuity(4, 1e-9) == pytest.approx(0.25)


@given(
    years=st.floats(0.5, 15),
    use=st.floats(0.05, 1),
    rate=st.floats(0, 0.3),
    resale=st.floats(0, 0.9),
)
def test_more_interest_costs_more_and_resale_less(
    owned: Owning, years: float, use: float, rate: float, resale: float
) -> None:
    def cost(**changes: float) -> float:
        changed = owned.assumptions.model_copy(update={"years": years, "utilisation": use, **changes})
        return Owning(**{**vars(owned), "assumptions": changed}).usd_per_year

    plain = cost()
    assert cost(financing_rate=rate) >= plain * (1 - 1e-12)
    assert cost(resale=resale) <= plain * (1 + 1e-12)
    assert 0 < Owning(**vars(owned)).network_share_of_total < 1


def test_the_network_shares_are_parts_of_what_they_are_shares_of(owned: Owning) -> None:
    parts = plain(owned.to_json())
    assert sum(parts["share_by"].values()) == pytest.approx(1)
    assert owned.network_share_of_capital < owned.network_share_with_nics < 0.2
    assert owned.yearly()["network"] < owned.network_usd_per_year < owned.usd_per_year


def test_a_host_that_is_only_rented_is_priced_like_one_with_the_same_gpus() -> None:
    owned = own(load("p6-b200"))
    assert owned.hosts_usd == 512 * 450_000
    assert owned.notes == ("p6-b200 (8 x B200-SXM6-180GB) is not sold; priced as dgx-b200, which has the same GPUs",)


def test_a_host_without_any_price_is_one_clear_error_until_one_is_given() -> None:
    fabric = load("tpu-v4-pod")
    with pytest.raises(CostError, match=r"no price is known for the host tpu-v4-host \(4 x TPU-v4\)"):
        own(fabric)
    assert own(fabric, Assumptions(host_price_usd=40_000)).hosts_usd == 1024 * 40_000


def test_lines_between_sites_are_rented() -> None:
    sites = load("two-sites-wan")
    owned = own(sites)
    assert owned.yearly()["wan"] == pytest.approx(2 * 400 * 100 * 12)  # lines, Gb/s, dollars, months
    assert sum(plain(owned.to_json())["share_by"].values()) == pytest.approx(1)
    free = own(sites, Assumptions(wan_usd_per_Gbps_month=0))
    assert "wan" not in free.yearly()
    assert owned.usd_per_year - free.usd_per_year == pytest.approx(960_000)
    assert owned.network_usd_per_year - free.network_usd_per_year == pytest.approx(960_000)
    assert owned.capital_usd == free.capital_usd, "rent is no purchase"


def test_a_price_in_the_cluster_file_goes_first() -> None:
    wan = {"rate": "100Gbps", "lines": 3, "price_per_month_usd": 5000}
    described = {
        "sites": [{"name": n, "hosts": 2, "host": "dgx-h100", "network": "leaf-spine NDR"} for n in ("a", "b")],
        "wan": wan,
    }
    owned = own(build(ClusterSpec.model_validate(described)))
    assert owned.wan_usd_per_year == 3 * 5000 * 12


def test_one_site_rents_nothing(owned: Owning) -> None:
    assert owned.wan_usd_per_year == 0 and "wan" not in owned.yearly()
