"""Quantities at the door: "400Gbps", "16MiB", "3us" to plain SI floats, and back for people.

Inside syncline every rate is bytes per second, every size bytes, every time seconds. Bits appear here and in text
shown to people, nowhere else.

    >>> rate("400Gbps")
    50000000000.0
    >>> size("16MiB")
    16777216
    >>> time("3us")
    3e-06
    >>> show_rate(50e9)
    '400 Gb/s'
"""

from __future__ import annotations

import math
import re

from syncline.errors import UnitError

_NUMBER = re.compile(r"\s*([0-9][0-9_]*(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+)\s*([A-Za-zµ/]*)\s*\Z")
_DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}

_SIZES = {f"{p}B": f for p, f in (_DECIMAL | _BINARY).items()} | {"": 1.0} | dict(_BINARY)
_RATES = {
    f"{p}{unit}": f * per
    for p, f in _DECIMAL.items()
    for unit, per in (("bps", 1 / 8), ("b/s", 1 / 8), ("bit/s", 1 / 8))
}
_RATES |= {f"{p}B/s": f for p, f in (_DECIMAL | _BINARY).items()} | {
    f"{p}Bps": f for p, f in (_DECIMAL | _BINARY).items()
}
_TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0, "d": 86400.0}
_LENGTHS = {"m": 1.0, "km": 1e3, "cm": 1e-2}


def _read(text: str | float | int, table: dict[str, float], what: str, example: str) -> float:
    if isinstance(text, bool) or not isinstance(text, (str, int, float)):
        raise UnitError(f"{what} {text!r} is not a quantity.", hint=f'Write it as "{example}".')
    if isinstance(text, (int, float)):
        value = float(text)
    else:
        match = _NUMBER.match(text)
        if match is None or match.group(2) not in table:
            known = ", ".join(sorted((u for u in table if u), key=len)[:8])
            raise UnitError(f'cannot read {what} "{text}".', hint=f'Write it as "{example}" (units: {known} ...).')
        value = float(match.group(1).replace("_", "")) * table[match.group(2)]
    if not math.isfinite(value) or value < 0:
        raise UnitError(f"{what} {text!r} must be finite and not negative.", hint=f'Write it as "{example}".')
    return value


def rate(text: str | float | int) -> float:
    """Read a rate as bytes per second: "400Gbps", "50GB/s"; a bare number is already bytes per second."""
    return _read(text, {"": 1.0} | _RATES, "rate", "400Gbps")


def size(text: str | float | int) -> int:
    """Read a size as bytes: "16MiB", "1GB", "4096"."""
    value = _read(text, _SIZES, "size", "16MiB")
    if value != int(value):
        raise UnitError(f"size {text!r} is not a whole number of bytes.", hint='Write it as "16MiB".')
    return int(value)


def time(text: str | float | int) -> float:
    """Read a time as seconds: "3us", "600ns", "1.5ms"; a bare number is already seconds."""
    return _read(text, {"": 1.0} | _TIMES, "time", "3us")


def length(text: str | float | int) -> float:
    """Read a length as metres: "30m", "2km"; a bare number is already metres."""
    return _read(text, {"": 1.0} | _LENGTHS, "length", "30m")


def _scaled(value: float, steps: list[tuple[float, str]]) -> str:
    factor, unit = next(((f, u) for f, u in steps if abs(value) >= f), steps[-1])
    return f"{value / factor:.4g} {unit}"


def show_rate(rate_Bps: float) -> str:
    """Show a rate in bits per second, as network people read it: `400 Gb/s`."""
    return _scaled(
        rate_Bps * 8, [(1e15, "Pb/s"), (1e12, "Tb/s"), (1e9, "Gb/s"), (1e6, "Mb/s"), (1e3, "kb/s"), (1.0, "b/s")]
    )


def show_bandwidth(rate_Bps: float) -> str:
    """Show a rate in bytes per second: `12.8 TB/s`."""
    return _scaled(
        rate_Bps, [(1e15, "PB/s"), (1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s")]
    )


def show_size(size_bytes: float) -> str:
    """Show a size in binary units: `16 MiB`."""
    return _scaled(size_bytes, [(2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B")])


def show_time(time_s: float) -> str:
    """Show a time with the unit that suits it: `3 us`."""
    return _scaled(
        time_s, [(86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")]
    )


def show_money(price_usd: float) -> str:
    """Show dollars as people quote them: `$4.35 M`."""
    for factor, unit in ((1e9, " B"), (1e6, " M"), (1e3, " k")):
        if abs(price_usd) >= factor:
            return f"${price_usd / factor:.3g}{unit}"
    return f"${price_usd:.2f}"


def show_power(power_w: float) -> str:
    """Show power: `10.2 kW`."""
    return _scaled(power_w, [(1e9, "GW"), (1e6, "MW"), (1e3, "kW"), (1.0, "W")])
