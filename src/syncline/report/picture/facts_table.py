"""The table of facts beside a picture: whatever facts a fabric has, as rows that people can read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape

from syncline.describe import units

_SHOWN = {
    "_Bps": units.show_bandwidth,
    "_usd": units.show_money,
    "_w": units.show_power,
    "_s": units.show_time,
    "_bytes": units.show_size,
}


def facts_table(facts: Mapping[str, object]) -> str:
    """Return the facts as an HTML table, nested ones below their heading; nothing for what is empty."""
    rows = "".join(_rows(facts, ""))
    return f"<h2>Facts</h2><table>{rows}</table>" if rows else ""


def _rows(facts: Mapping[str, object], under: str) -> Iterator[str]:
    for key, value in facts.items():
        label = _label(str(key))
        if isinstance(value, Mapping):
            if value:
                yield f'<tr class="head"><th scope="rowgroup" colspan="2">{escape(label)}</th></tr>'
                yield from _rows(value, str(key))
        elif isinstance(value, (list, tuple)):
            yield from _listed(label, value)
        elif value is not None and value != "":
            yield _row(label, shown(str(key), value, under), inner=bool(under))


def _listed(label: str, values: list[object] | tuple[object, ...]) -> Iterator[str]:
    """Return rows for a list: a bill of parts one row each, anything else as words."""
    parts = [v for v in values if isinstance(v, Mapping)]
    if parts:
        yield f'<tr class="head"><th scope="rowgroup" colspan="2">{escape(label)}</th></tr>'
    for part in parts:
        name = f"{shown('count', part['count'])} × {part['part']}" if "count" in part and "part" in part else "entry"
        price = part.get("price_usd")
        worth = "no price" if price is None else ("≈ " if part.get("estimate") else "") + shown("price_usd", price)
        yield _row(name, worth, inner=True, source=str(part.get("source", "")))
    words = [str(v) for v in values if not isinstance(v, Mapping)]
    if words:
        yield _row(label, ", ".join(words))


def _row(label: str, value: str, *, inner: bool = False, source: str = "") -> str:
    look = ' class="inner"' if inner else ""
    title = f' title="{escape(source)}"' if source else ""
    return f'<tr{look}{title}><th scope="row">{escape(label)}</th><td>{escape(value)}</td></tr>'


def shown(key: str, value: object, under: str = "") -> str:
    """Return a value as people read it; the end of its name says its unit."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, (int, float)):
        return str(value)
    if under == "oversubscription" or key == "oversubscription":
        return f"{value:.3g}:1"
    for suffix, show in _SHOWN.items():
        if key.endswith(suffix):
            return show(float(value))
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def _label(key: str) -> str:
    """Return a name without its unit and underscores: `network_price_usd` is `network price`."""
    for suffix in _SHOWN:
        key = key.removesuffix(suffix)
    words = key.replace("_", " ")
    return words.replace("gpu", "GPU").replace("nvlink", "NVLink").replace("nics", "NICs")
