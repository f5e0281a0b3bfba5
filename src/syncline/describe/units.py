"""Quantities at the door: "400Gbps", "16MiB", "3us" to plain SI numbers, and back for people.

Inside syncline every rate is bytes per second, every size bytes, every time seconds. Bits appear here and in text
shown to people, nowhere else.

    >>> rate("400Gbps")
    50000000000.0
    >>> size("16MiB")
    16777216
    >>> time("600ns")
    6e-07
    >>> show_rate(50e9)
    '400 Gb/s'
"""

from __future__ import annotations

import decimal
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from numbers import Integral, Real

from syncline.errors import UnitError

_NUMBER = re.compile(r"\s*((?:[0-9][0-9_]*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)\s*([A-Za-zµμ/]*)\s*\Z", re.ASCII)
_DECIMAL = {"": "1", "k": "1e3", "K": "1e3", "M": "1e6", "G": "1e9", "T": "1e12", "P": "1e15", "E": "1e18"}
_BINARY = {f"{letter}i": str(1024**power) for power, letter in enumerate("KMGTPE", start=1)}
# Tables of unit -> factor, as text for Decimal: 600 * 1e-9 is not 6e-07 in binary floating point.
_SIZES = {"": "1"} | _BINARY | {f"{p}B": f for p, f in (_DECIMAL | _BINARY).items()}
_BYTE_RATES = {f"{p}{per}": f for p, f in (_DECIMAL | _BINARY).items() for per in ("B/s", "Bps")}
_BIT_RATES = {f"{p}{per}": str(Decimal(f) / 8) for p, f in _DECIMAL.items() for per in ("b/s", "bps", "bit/s")}
_RATES = {"": "1"} | _BYTE_RATES | _BIT_RATES
_TIMES = {"": "1", "s": "1", "ms": "1e-3", "us": "1e-6", "µs": "1e-6", "μs": "1e-6", "ns": "1e-9", "ps": "1e-12"}
_TIMES |= {"min": "60", "h": "3600", "d": "86400"}
_COUNTS = {"": "1", "k": "1e3", "K": "1e3", "M": "1e6", "B": "1e9", "G": "1e9", "T": "1e12"}
_LENGTHS = {"": "1", "cm": "1e-2", "m": "1", "km": "1e3"}

# Overflow becomes infinity, which is refused by name, instead of an exception of decimal's own.
_EXACT = decimal.Context(prec=50, traps=[])


def rate(text: str | float) -> float:
    """Read a rate as bytes per second: "400Gbps", "50GB/s"; a bare number is already bytes per second."""
    return float(
        _read(text, _RATES, "rate", 'Write it as "400Gbps" (units: Mbps, Gbps, Gb/s, Tbps, MB/s, GB/s, GiB/s).')
    )


def size(text: str | float) -> int:
    """Read a size as bytes: "16MiB", "1GB", "4096"."""
    hint = 'Write it as "16MiB" (units: B, kB, MB, GB, TB, KiB, MiB, GiB, TiB).'
    value = _read(text, _SIZES, "size", hint)
    if value != value.to_integral_value():
        raise UnitError(f"size {text!r} is not a whole number of bytes.", hint=hint)
    return int(value)


def time(text: str | float) -> float:
    """Read a time as seconds: "3us", "600ns", "1.5ms"; a bare number is already seconds."""
    return float(_read(text, _TIMES, "time", 'Write it as "3us" (units: ns, us, ms, s, min, h, d).'))


def length(text: str | float) -> float:
    """Read a length as metres: "30m", "2km"; a bare number is already metres."""
    return float(_read(text, _LENGTHS, "length", 'Write it as "30m" (units: cm, m, km).'))


def count(text: str | float) -> float:
    """Read a number of tokens or dollars: "15T", "2.5B", "$30M", "500k".

    >>> count("15T"), count("$2.5M")
    (15000000000000.0, 2500000.0)
    """
    plain = text.replace(",", "").replace("$", "", 1) if isinstance(text, str) else text
    return float(_read(plain, _COUNTS, "number", 'Write it as "15T", "30M" or "500k" (units: k, M, B, T).'))


def show_rate(rate_Bps: float) -> str:
    """Show a rate in bits per second, as network people read it: `400 Gb/s`."""
    steps = [(1e15, "Pb/s"), (1e12, "Tb/s"), (1e9, "Gb/s"), (1e6, "Mb/s"), (1e3, "kb/s"), (1.0, "b/s")]
    return _scaled(rate_Bps * 8, steps, zero="0 b/s")


def show_bandwidth(rate_Bps: float) -> str:
    """Show a rate in bytes per second: `12.8 TB/s`."""
    steps = [(1e15, "PB/s"), (1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s")]
    return _scaled(rate_Bps, steps, zero="0 B/s")


_BINARY_STEPS = [
    (2.0**60, "EiB"),
    (2.0**50, "PiB"),
    (2.0**40, "TiB"),
    (2.0**30, "GiB"),
    (2.0**20, "MiB"),
    (2.0**10, "KiB"),
]
_DECIMAL_STEPS = [(1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")]
_BYTES_OF = {"B": 1.0} | {unit: step for step, unit in (*_BINARY_STEPS, *_DECIMAL_STEPS)}


def show_size(size_bytes: float) -> str:
    """Show a size in binary units: `16 MiB`."""
    return _scaled(size_bytes, [*_BINARY_STEPS, (1.0, "B")], zero="0 B")


def show_given_size(size_bytes: float) -> str:
    """Show a size in the units that it was given in: decimal ones where only they are exact.

    >>> show_given_size(1_000_000), show_given_size(1 << 20), show_given_size(10**12), show_given_size(123_456_789)
    ('1 MB', '1 MiB', '1 TB', '117.7 MiB')
    """
    binary, decimal = show_size(size_bytes), _scaled(size_bytes, [*_DECIMAL_STEPS, (1.0, "B")], zero="0 B")
    is_whole = [_bytes_of(text) == size_bytes for text in (binary, decimal)]
    return decimal if is_whole == [False, True] else binary


def _bytes_of(text: str) -> float:
    """Return the bytes that a shown size stands for."""
    number, unit = text.replace(",", "").split()
    return round(float(number) * _BYTES_OF[unit], 3)


def show_time(time_s: float) -> str:
    """Show a time with the unit that suits it: `3 us`."""
    steps = [(86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")]
    return _scaled(time_s, steps, zero="0 s")


def show_money(price_usd: float) -> str:
    """Show dollars as people quote them: `$4.35 M`."""
    if abs(price_usd) < 999.995:
        return f"-${-price_usd:.2f}" if price_usd < 0 else f"${price_usd:.2f}"
    text = _scaled(abs(price_usd), [(1e9, "B"), (1e6, "M"), (1e3, "k")], zero="0", digits=3)
    return f"-${text}" if price_usd < 0 else f"${text}"


def show_count(number: float) -> str:
    """Show a number of tokens: `15 T`.

    >>> show_count(15e12), show_count(4.2e6)
    ('15 T', '4.2 M')
    """
    return _scaled(number, [(1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"), (1.0, "")], zero="0").rstrip()


def counted(number: int, noun: str) -> str:
    """Write a number of things.

    >>> counted(1, "host"), counted(1024, "host"), counted(2, "leaf switch")
    ('1 host', '1,024 hosts', '2 leaf switches')
    """
    return (
        f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}{'es' if noun.endswith(('ch', 's', 'x')) else 's'}"
    )


def show_power(power_w: float) -> str:
    """Show power: `10.2 kW`."""
    return _scaled(power_w, [(1e9, "GW"), (1e6, "MW"), (1e3, "kW"), (1.0, "W")], zero="0 W")


BY_ENDING: Mapping[str, Callable[[float], str]] = {
    "_Bps": show_rate, "_s": show_time, "_s_per_m": lambda value: f"{show_time(value)} per m", "_bytes": show_size,
    "_usd": show_money, "_w": show_power,
}  # fmt: skip
"""How a figure is shown whose name ends so."""


def show_by_name(name: str, value: object) -> str:
    """Show a value as people read it; the end of its name is its unit.

    >>> show_by_name("power_w", 10200.0), show_by_name("ports", 12288), show_by_name("is_rented", True)
    ('10.2 kW', '12,288', 'yes')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, (int, float)):
        return str(value)
    show = next((show for ending, show in BY_ENDING.items() if name.endswith(ending)), None)
    return show(value) if show else f"{value:,}" if isinstance(value, int) else f"{value:,g}"


def _read(text: str | float, factors: dict[str, str], what: str, hint: str) -> Decimal:
    if isinstance(text, bool) or not isinstance(text, (str, Real)):
        raise UnitError(f"{what} {text!r} is not a quantity.", hint=hint)
    if isinstance(text, str):
        match = _NUMBER.match(text)
        if match is None or match.group(2) not in factors:
            raise UnitError(f'cannot read {what} "{text}".', hint=hint)
        number = _EXACT.create_decimal(match.group(1).replace("_", ""))
        value = _EXACT.multiply(number, Decimal(factors[match.group(2)]))
    else:
        value = Decimal(int(text) if isinstance(text, Integral) else float(text))
    # Not is_finite: a Decimal of 1e400 is finite, but no float holds it.
    if value.is_nan() or not 0 <= value <= Decimal("1e300"):
        raise UnitError(f"{what} {text!r} must be finite and not negative.", hint=hint)
    return value


def _scaled(value: float, steps: list[tuple[float, str]], zero: str, digits: int = 4) -> str:
    if value == 0:
        return zero
    rounded = float(f"{value:.{digits}g}")  # before the unit is chosen, so that 999.99 Gb/s is 1 Tb/s
    factor, unit = next(((f, u) for f, u in steps if abs(rounded) >= f), steps[-1])
    scaled = value / factor
    return f"{scaled:,.0f} {unit}" if abs(scaled) >= 10**digits else f"{scaled:.{digits}g} {unit}"
