from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from syncline.describe.guide import read_page
from syncline.errors import CostError, DescriptionError
from syncline.planning.cost.assumptions import Assumptions, listed, load_assumptions


def test_every_default_has_a_source_or_says_that_it_is_assumed() -> None:
    for row in listed(Assumptions(), {}):
        assert row.origin == "default"
        assert len(row.source) > 10


def test_an_option_goes_over_a_file_and_both_are_named(tmp_path: Path) -> None:
    path = tmp_path / "ours.yaml"
    path.write_text("years: 3\npue: 1.1\n")
    assumptions, origin = load_assumptions(path, {"pue": 1.5, "cloud": None})
    assert (assumptions.years, assumptions.pue, assumptions.cloud) == (3, 1.5, None)
    assert origin == {"years": f"file {path}", "pue": "option"}
    shown = {row.name: row for row in listed(assumptions, origin)}
    assert shown["years"].source == f"file {path}"
    assert shown["utilisation"].source.startswith("assumed")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"years": 0}, "years is 0; it must be above 0.\n  The default is 4.0."),
        ({"utilisation": 1.2}, "utilisation is 1.2; it must be at most 1.\n  The default is 0.7."),
        (
            {"power_usd_per_kWh": -0.1},
            "power_usd_per_kWh is -0.1; it must be at least 0.\n  The default is 0.08.",
        ),
        (
            {"yeers": 3},
            'there is no assumption "yeers".\n  Close: years.\n  `syncline guide method/cost` has them all.',
        ),
        ({"pue": float("nan")}, "pue is nan; it must be a finite number.\n  The default is 1.25."),
        (
            {"host_price_usd": -5},
            "host_price_usd is -5; it must be at least 0.\n  `syncline guide method/cost` says what it means.",
        ),
    ],
)
def test_a_wrong_assumption_is_one_clear_error(options: dict[str, float], message: str) -> None:
    with pytest.raises(CostError) as caught:
        load_assumptions(None, options)
    assert str(caught.value) == message


def test_a_wrong_line_of_a_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "ours.yaml"
    path.write_text("years: 3\n\npue: 0.5\n")
    with pytest.raises(CostError, match=r"ours\.yaml line 3: pue is 0\.5"):
        load_assumptions(path)
    path.write_text("- 3\n")
    with pytest.raises(CostError, match="assumptions are a mapping"):
        load_assumptions(path)
    path.write_text("years: [\n")
    with pytest.raises(DescriptionError, match="not valid YAML"):
        load_assumptions(path)


def test_the_manual_has_them_all() -> None:
    manual = read_page("method/cost")
    assert [name for name in Assumptions.model_fields if f"`{name}`" not in manual] == []


def test_noticing_a_failure_takes_half_a_minute_to_a_quarter_of_an_hour_and_ten_days_at_most() -> None:
    assert Assumptions.model_fields["detect_s"].json_schema_extra["range"] == [30.0, 900.0]  # type: ignore[call-overload,index]
    assert [Assumptions(detect_s=value).detect_s for value in (0, 864_000)] == [0, 864_000]
    for value in (-1, 864_001):
        with pytest.raises(ValidationError):
            Assumptions(detect_s=value)
