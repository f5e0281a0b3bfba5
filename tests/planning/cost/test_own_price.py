"""A price of one's own is fixed; list prices that ship have a range."""

from __future__ import annotations

from pathlib import Path

import pytest

from syncline.errors import CostError
from syncline.fabric import load
from syncline.planning.cost.assumptions import Assumptions
from syncline.planning.cost.prices import load_prices
from syncline.planning.decide.uncertain import prices_of
from syncline.planning.money import Money, money_of
from syncline.planning.named_job import named_job

HEAD = "kind,provider,item,gpu,num_gpus,price,currency,per,region,date,status,source,notes\n"
OURS = "instance,Ours,contract-h100,H100-SXM5-80GB,8,19.20,USD,hour,,2026-11,current,our contract,\n"


def money(prices: Path | None = None, **assumed: object) -> Money:
    a = Assumptions.model_validate(assumed)
    found, _ = money_of(load("h100-64-rail"), named_job("llama3-70b"), a, load_prices(prices) if prices else None)
    assert found is not None
    return found


def test_a_price_of_ones_own_has_no_range(tmp_path: Path) -> None:
    table = tmp_path / "ours.csv"
    table.write_text(HEAD + OURS)
    contract, given = money(table, cloud="Ours"), money(gpu_hour_usd=2.40)
    assert contract.usd_per_gpu_hour == given.usd_per_gpu_hour == pytest.approx(2.40)
    assert (contract.basis, given.basis) == ("rented: Ours contract-h100", "rented: your price")
    for one in (contract, given):
        (rent,) = prices_of(one)
        assert one.fixed and rent.low == rent.value == rent.high and rent.source.endswith("given, taken as fixed")


def test_a_list_price_keeps_its_range_in_a_copied_table_too(tmp_path: Path) -> None:
    row = next(row for row in load_prices().offers("H100-SXM5-80GB") if row.provider == "Nebius")
    assert not money(cloud="Nebius").fixed
    table = tmp_path / "copied.csv"
    cells = (row.kind, row.provider, row.item, row.gpu, str(row.num_gpus), repr(row.price_usd), "USD", "hour",
             row.region, row.date, row.status, f'"{row.source}"', f'"{row.notes}"')  # fmt: skip
    table.write_text(HEAD + ",".join(cells) + "\n" + OURS)
    copied = money(table, cloud="Nebius")
    (rent,) = prices_of(copied)
    assert not copied.fixed and rent.low == pytest.approx(0.8 * rent.value) and rent.words.startswith("list price of ")


def test_a_price_of_ones_own_stands_alone() -> None:
    with pytest.raises(CostError, match=r"stands alone"):
        money(gpu_hour_usd=2.4, cloud="Nebius")
