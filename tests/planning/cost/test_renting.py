from __future__ import annotations

import pytest

from syncline.errors import CostError
from syncline.fabric import Fabric
from syncline.planning.cost.assumptions import Assumptions
from syncline.planning.cost.owning import HOURS_PER_YEAR
from syncline.planning.cost.prices import load_prices
from syncline.planning.cost.renting import gpu_models, rent

H100 = "H100-SXM5-80GB"


def test_a_fabric_is_counted_by_gpu_model(rail: Fabric) -> None:
    assert gpu_models(rail) == {H100: 512}


def test_one_quote_a_cloud_cheapest_first() -> None:
    quotes = rent({H100: 512}, load_prices())
    assert [quote.cloud for quote in quotes] == ["Nebius", "Lambda", "AWS", "OCI", "GCP", "Azure"]
    aws = quotes[2]
    assert aws.label == "AWS p5.48xlarge"
    assert aws.usd_per_hour == pytest.approx(64 * 55.04)
    assert aws.cost_usd(2, 0.5) == pytest.approx(64 * 55.04 * HOURS_PER_YEAR)


def test_instances_are_whole() -> None:
    (aws,) = rent({H100: 12}, load_prices(), Assumptions(cloud="aws"))
    assert aws.leases[0].num_instances == 2
    assert aws.usd_per_gpu_hour == pytest.approx(2 * 55.04 / 12)


def test_a_commitment_is_paid_whether_used_or_not() -> None:
    (aws,) = rent({H100: 8}, load_prices(), Assumptions(cloud="aws", commitment_discount=0.4))
    assert aws.usd_per_gpu_hour == pytest.approx(6.88 * 0.6)
    assert aws.usd_per_used_gpu_hour(0.5) == pytest.approx(6.88 * 1.2)
    assert aws.cost_usd(1, 0.2) == aws.cost_usd(1, 1.0)


def test_a_mixed_fabric_is_rented_where_all_its_gpus_are() -> None:
    quotes = rent({H100: 8, "B300-SXM6-270GB": 8}, load_prices())
    assert [quote.label for quote in quotes] == ["Nebius 8x H100 SXM + 8x B300 SXM"]
    assert quotes[0].usd_per_hour == pytest.approx(30.8 + 62.8)


def test_gpus_that_nobody_rents_have_no_quotes_but_a_named_cloud_is_an_error() -> None:
    assert rent({"GB200": 72}, load_prices()) == ()
    with pytest.raises(CostError) as caught:
        rent({"B300-SXM6-270GB": 8}, load_prices(), Assumptions(cloud="aws"))
    assert str(caught.value) == (
        "AWS rents no B300-SXM6-270GB, as far as prices.csv knows.\n"
        "  Who does: Nebius (everywhere).\n"
        "  Choose another `cloud` or `region`, or add the price to a table of your own (`prices`)."
    )
    with pytest.raises(CostError, match="Azure rents no H100-SXM5-80GB in mars"):
        rent({H100: 8}, load_prices(), Assumptions(cloud="azure", region="mars"))
    with pytest.raises(CostError, match="no cloud rents GB200 in mars"):
        rent({"GB200": 8}, load_prices(), Assumptions(region="mars"))
