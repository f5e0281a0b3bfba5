"""The facts next to a picture: whatever figures a fabric has, as rows that people can read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from syncline.describe import units


class PictureFact(NamedTuple):
    """One row: a heading of those below it where `value` is None; `source` is shown on hover."""

    label: str
    value: str | None
    is_inner: bool = False
    source: str = ""


def fact_rows(facts: Mapping[str, object], under: str = "") -> Iterator[PictureFact]:
    """Return the facts, nested ones and bills of parts below their heading; nothing for what is empty."""
    for key, value in facts.items():
        label = _label(str(key))
        parts = [v for v in value if isinstance(v, Mapping)] if isinstance(value, (list, tuple)) else []
        if parts or (isinstance(value, Mapping) and value):
            yield PictureFact(label, None)
        for part in parts:
            yield _part(part)
        if isinstance(value, Mapping):
            yield from fact_rows(value, str(key))
        elif isinstance(value, (list, tuple)):
            if words := [str(v) for v in value if not isinstance(v, Mapping)]:
                yield PictureFact(label, ", ".join(words))
        elif value is not None and value != "":
            yield PictureFact(label, _shown(str(key), value, under), bool(under))


def _part(part: Mapping[str, object]) -> PictureFact:
    name = f"{_shown('count', part['count'])} × {part['part']}" if "count" in part and "part" in part else "entry"
    price = part.get("price_usd")
    worth = "no price" if price is None else ("≈ " if part.get("estimate") else "") + _shown("price_usd", price)
    return PictureFact(name, worth, True, str(part.get("source", "")))


def _shown(key: str, value: object, under: str = "") -> str:
    """Return a value as people read it."""
    if "oversubscription" in (under, key) and isinstance(value, (int, float)):
        return f"{value:.3g}:1"
    if key == "bisection_Bps" and isinstance(value, (int, float)):  # of many links: bytes, as the inventory has it
        return units.show_bandwidth(value)
    return units.show_by_name(key, value)


def _label(key: str) -> str:
    """Return a name without its unit and underscores: `network_price_usd` is `network price`."""
    for suffix in units.BY_ENDING:
        key = key.removesuffix(suffix)
    words = key.replace("_", " ")
    return words.replace("gpu", "GPU").replace("nvlink", "NVLink").replace("nics", "NICs")
