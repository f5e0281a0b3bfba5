"""How long a paused port may go on sending."""

from __future__ import annotations

# Pause quanta (512 bit times) within which a receiver must stop, by port rate: IEEE 802.3 clause 31B.3.7 and its
# amendments for 200 and 400 Gb/s. A faster port is taken like 400 Gb/s, in proportion to its rate.
_QUANTA = ((10e9, 60), (25e9, 80), (40e9, 118), (100e9, 394), (200e9, 720), (400e9, 905))


def quanta(rate_bps: float) -> float:
    """Return within how many pause quanta a port of that rate must stop."""
    for rate, count in _QUANTA:
        if rate_bps <= rate * 1.001:
            return count
    return _QUANTA[-1][1] * rate_bps / _QUANTA[-1][0]


def response_bytes(rate_Bps: float) -> int:
    """Return what a port of that rate may send between hearing of a pause and heeding it."""
    return round(quanta(rate_Bps * 8) * 64)
