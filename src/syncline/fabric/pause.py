"""How long a paused port may go on sending."""

from __future__ import annotations

# Pause quanta (512 bit times) within which a receiver must stop, by port rate: IEEE 802.3 clause 31B.3.7, as SONiC's
# headroom scripts of two vendors list it (sonic-swss, cfgmgr/buffer_headroom_mellanox.lua and _barefoot.lua). They take
# 800 Gb/s like 400 Gb/s; here a faster port is taken in proportion to its rate, which is the safe side.
_QUANTA = ((10e9, 67), (25e9, 80), (40e9, 118), (50e9, 147), (100e9, 394), (200e9, 453), (400e9, 905))


def quanta(rate_bps: float) -> float:
    """Return within how many pause quanta a port of that rate must stop."""
    for rate, count in _QUANTA:
        if rate_bps <= rate * 1.001:
            return count
    return _QUANTA[-1][1] * rate_bps / _QUANTA[-1][0]


def response_bytes(rate_Bps: float) -> int:
    """Return what a port of that rate may send between hearing of a pause and heeding it."""
    return round(quanta(rate_Bps * 8) * 64)
