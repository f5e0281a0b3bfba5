"""Names of parts, what a cluster file adds or changes, estimates, and the texts of mistakes."""

from __future__ import annotations

from typing import Any

import pytest

from syncline.errors import CatalogError, DescriptionError
from syncline.fabric.catalog import (
    Catalog,
    load_catalog,
)
from syncline.report.text.fabric import part_rows

CATALOG = load_catalog()


@pytest.mark.parametrize("name", ["H100-SXM", "h100 sxm", "H100_SXM5", "h100", "H100-SXM5-80GB"])
def test_names_forgive_case_and_hyphens(name: str) -> None:
    assert CATALOG.gpu(name).name == "H100-SXM5-80GB"


def test_unknown_name() -> None:
    with pytest.raises(CatalogError) as caught:
        CATALOG.gpu("H1000")
    lines = str(caught.value).split("\n")
    assert lines[0] == 'no gpu named "H1000" in the catalogue.'
    assert lines[1].startswith("  Close: H100-SXM5-80GB, ")
    assert lines[1].count(",") <= 2
    assert (
        lines[2]
        == "  List them with `syncline fabric parts gpu`, or describe yours under `parts:` in the cluster file."
    )


def test_unknown_name_far_from_all() -> None:
    with pytest.raises(CatalogError) as caught:
        CATALOG.switch("zzzzzzzz")
    assert str(caught.value) == (
        'no switch named "zzzzzzzz" in the catalogue.\n'
        "  List them with `syncline fabric parts switch`, or describe yours under `parts:` in the cluster file."
    )


def test_unknown_kind() -> None:
    with pytest.raises(CatalogError, match='there is no kind of part "gpus"'):
        CATALOG.names("gpus")


LAB_SWITCH = {
    "name": "Lab-8",
    "vendor": "us",
    "modes": [{"link": "10GbE", "num_ports": 8}],
    "latency_s": "2us",
    "power_w": 20,
    "power_kind": "max",
    "price_usd": 99,
}


def extended(**parts: Any) -> Catalog:
    return CATALOG.with_parts(parts)


def test_own_part_is_added_and_the_catalogue_unchanged() -> None:
    own = extended(switch=[LAB_SWITCH])
    part = own.switch("lab 8")
    assert (part.latency_s, part.source, part.price_source, part.price_is_estimate) == (
        2e-6,
        "cluster file",
        "cluster file",
        False,
    )
    assert "Lab-8" not in CATALOG.names("switch")
    assert own.gpu("H100") is CATALOG.gpu("H100")


def test_own_price_replaces_ours() -> None:
    own = extended(switch=[{"name": "QM9700", "like": "QM9700", "price_usd": 31_000}])
    part = own.switch("QM9700")
    assert part.price_usd == 31_000
    assert (part.price_source, part.price_is_estimate) == ("cluster file", False)
    assert part.modes == CATALOG.switch("QM9700").modes
    assert own.names("switch").count("QM9700") == 1


def test_like_takes_the_rest_from_another_part() -> None:
    own = extended(gpu=[{"name": "H100-mine", "like": "H100", "memory_bytes": "94GiB"}])
    assert own.gpu("H100-mine").memory_bytes == 94 * 2**30
    assert own.gpu("H100-mine").power_w == 700


@pytest.mark.parametrize(
    ("parts", "error", "text"),
    [
        ({"gadget": []}, CatalogError, 'there is no kind of part "gadget".'),
        ({"switch": {"name": "x"}}, DescriptionError, 'parts of kind "switch" must be a list.'),
        ({"switch": ["x"]}, DescriptionError, "a part of kind \"switch\" must be a mapping, not 'x'."),
        ({"switch": [LAB_SWITCH | {"colour": "red"}]}, DescriptionError, 'switch "Lab-8": unknown key "colour"'),
        (
            {"switch": [LAB_SWITCH | {"latency_s": "2 parsecs"}]},
            DescriptionError,
            "latency_s: cannot read time",
        ),
        ({"switch": [LAB_SWITCH | {"latency_s": None}]}, DescriptionError, 'switch "Lab-8": latency_s: '),
        ({"switch": [LAB_SWITCH | {"modes": []}]}, DescriptionError, 'switch "Lab-8": modes: '),
        ({"switch": [{"name": "x", "like": "QM97000"}]}, CatalogError, 'no switch named "QM97000" in the catalogue.'),
        ({"switch": [LAB_SWITCH | {"aliases": ["QM9700"]}]}, DescriptionError, 'switch name "QM9700" belongs to both'),
        (
            {"switch": [LAB_SWITCH | {"modes": [{"link": "11GbE", "num_ports": 8}]}]},
            CatalogError,
            'switch "Lab-8": no link named "11GbE" in the catalogue.',
        ),
        ({"switch": [LAB_SWITCH | {"price_source": ""}]}, DescriptionError, "a price needs price_source"),
        (
            {"host": [{"name": "x", "like": "dgx-h100", "nic": None}]},
            DescriptionError,
            "nic, link and num_nics go together",
        ),
        (
            {"gpu": [{"name": "x", "like": "H100", "scale_up": None}]},
            DescriptionError,
            "scale_up and num_scale_up_links",
        ),
    ],
)
def test_bad_own_parts(parts: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        CATALOG.with_parts(parts)
    assert text in str(caught.value)


def test_own_cable_wins_when_cheaper() -> None:
    own = extended(cable=[{"name": "bargain", "like": "400G DR4", "price_per_end_usd": 100}])
    assert own.cable_for(own.link("NDR"), 40).name == "bargain"
    assert CATALOG.cable_for(CATALOG.link("NDR"), 40).name == "400G SR4"


def test_what_nobody_publishes_is_an_estimate_with_its_range() -> None:
    for kind in ("scale_up", "scale_up_switch"):
        for part in load_catalog().parts(kind):
            (latency,) = part.estimates
            assert latency.figure == "latency_s" and latency.high == pytest.approx(4 * latency.low), part.name
    rows = dict(part_rows(load_catalog().scale_up("NVLink4").model_dump(mode="json", exclude_none=True)))
    assert rows["latency_s"] == "500 ns (estimate: 250 ns to 1 us)" and "estimates" not in rows


def test_a_figure_of_the_cluster_file_is_no_estimate() -> None:
    mine = {"name": "mine", "like": "NVLink4", "latency_s": "5us"}
    assert load_catalog().with_parts({"scale_up": [mine]}).scale_up("mine").estimates == ()
    with pytest.raises(DescriptionError, match="latency_s is 5e-06, outside 1e-06 to 2e-06"):
        load_catalog().with_parts({"scale_up": [mine | {"estimates": {"latency_s": ["1us", "2us"]}}]})
