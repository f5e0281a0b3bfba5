from __future__ import annotations

from pathlib import Path

import pytest

from syncline.errors import CostError, DescriptionError, FileError
from syncline.fabric.catalog import load_catalog
from syncline.planning.cost.prices import COLUMNS, load_prices, parse_prices

HEAD = ",".join(COLUMNS)
GOOD = "instance,AWS,p5.48xlarge,H100-SXM5-80GB,8,55.04,USD,hour,us-east-1/us-east-2,2026-08,current,a list,"


def table(*rows: str) -> str:
    return "\n".join((HEAD, *rows)) + "\n"


def test_every_row_that_ships_has_a_source_and_most_a_date() -> None:
    prices = load_prices()
    assert all(row.source for row in prices.rows)
    assert all(row.date for row in prices.rows if row.status == "current" and "trn2" not in row.item)


def test_instances_name_gpus_of_the_parts_catalogue() -> None:
    known = set(load_catalog().names("gpu"))
    assert {row.gpu for row in load_prices().rows if row.kind == "instance"} - known == {"Trainium", "Trainium2"}


def test_offers_are_whole_current_instances_cheapest_first() -> None:
    offers = load_prices().offers("H100-SXM5-80GB")
    assert [row.provider for row in offers] == ["Nebius", "Lambda", "AWS", "OCI", "GCP", "Azure", "Azure"]
    assert {row.status for row in offers} == {"current"}
    assert offers[2].usd_per_gpu_hour == pytest.approx(55.04 / 8)


def test_an_offer_is_found_by_cloud_whatever_the_case_and_by_region() -> None:
    prices = load_prices()
    assert prices.offers("H100-SXM5-80GB", cloud="azure")[0].price_usd == 98.32
    assert prices.offers("H100-SXM5-80GB", cloud="azure", region="westus")[0].price_usd == 127.816
    assert prices.offers("H100-SXM5-80GB", cloud="AWS", region="us-east-2")[0].price_usd == 55.04
    assert prices.offers("H100-SXM5-80GB", cloud="AWS", region="mars") == ()


def test_a_rental_that_a_report_assumed_counts_only_when_it_is_named() -> None:
    prices = load_prices()
    assert "DeepSeek" not in prices.clouds
    assert prices.offers("H800-SXM5-80GB", cloud="deepseek")[0].usd_per_gpu_hour == 2


def test_an_unknown_cloud_names_the_known_ones() -> None:
    with pytest.raises(CostError) as caught:
        load_prices().cloud("awz")
    assert str(caught.value) == (
        'no prices of a cloud "awz" in prices.csv.\n'
        "  Known: AWS, Azure, GCP, Lambda, Nebius, OCI, DeepSeek.\n"
        "  Add its rows to a table of your own and give it as `prices`."
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("55.04", "-1", "ours.csv line 3: price is -1, which is negative.\n  Write 0 or more."),
        ("55.04", "cheap", 'ours.csv line 3: price "cheap" is not a number.\n  Write it as 55.04, say.'),
        ("55.04", "inf", "ours.csv line 3: price is inf.\n  Write a finite number."),
        (
            "USD",
            "EUR",
            'ours.csv line 3: unknown currency "EUR".\n'
            "  Prices are in USD: convert them, and say the rate and day in notes.",
        ),
        ("hour", "month", 'ours.csv line 3: per is "month".\n  A price of kind instance is per "hour".'),
        (
            "2026-08",
            "last week",
            'ours.csv line 3: date "last week" cannot be read.\n  Write it as 2026-08 or 2026-08-31.',
        ),
        ("a list", "", "ours.csv line 3: source is empty.\n  A price without its source is not used."),
        (",AWS", ",", "ours.csv line 3: provider is empty.\n  A price of kind instance needs it."),
        (",8,", ",0,", "ours.csv line 3: num_gpus is 0, which is below 1.\n  Write 1 or more."),
        (",8,", ",8.5,", "ours.csv line 3: num_gpus 8.5 is not a whole number.\n  Round it."),
        (
            "instance",
            "instanse",
            'ours.csv line 3: kind is "instanse".\n  It is one of instance, gpu_hour, host, facility, switch, network.',
        ),
        ("current", "now", 'ours.csv line 3: status is "now".\n  It is one of current, superseded, partial.'),
        ("a list,", "a list,,", 'ours.csv line 3: more cells than columns.\n  Put text with commas in "quotes".'),
        (",a list,", "", "ours.csv line 3: fewer cells than columns.\n  Leave a cell empty, but keep its comma."),
    ],
)
def test_a_wrong_line_is_one_clear_error(old: str, new: str, message: str) -> None:
    bad = GOOD.replace("p5.", "p6.").replace(old, new, 1)
    with pytest.raises(DescriptionError) as caught:
        parse_prices(table(GOOD, bad), "ours.csv")
    assert str(caught.value) == message


def test_two_current_prices_of_one_thing_are_refused() -> None:
    with pytest.raises(CostError, match=r"AWS p5\.48xlarge has two current prices: \$55\.04 and \$50"):
        parse_prices(table(GOOD, GOOD.replace("55.04", "50")), "ours.csv")


def test_an_empty_table_and_missing_columns_are_refused() -> None:
    with pytest.raises(DescriptionError, match="the table has no rows"):
        parse_prices(HEAD + "\n", "ours.csv")
    with pytest.raises(DescriptionError, match="line 1: the table has no column currency"):
        parse_prices(HEAD.replace("currency,", "") + "\n", "ours.csv")
    with pytest.raises(DescriptionError, match="no column kind"):
        parse_prices("", "ours.csv")


def test_a_file_of_the_same_form_replaces_what_ships(tmp_path: Path) -> None:
    path = tmp_path / "ours.csv"
    path.write_text("\ufeff" + table(GOOD.replace("55.04", "20"), ""))
    prices = load_prices(path)
    assert prices.clouds == ("AWS",)
    assert prices.offers("H100-SXM5-80GB")[0].usd_per_gpu_hour == 2.5
    with pytest.raises(FileError, match="there is no file"):
        load_prices(tmp_path / "none.csv")
