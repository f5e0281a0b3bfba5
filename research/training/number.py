"""Numbers as tables and papers write them: "4,096", "1.2k", "52 %", "3.2-3.4", "4M tokens", "~175B", "memory: 96".

What cannot be read as one number is None, never a guess: "8x8" and "varies" stay unread.
"""

from __future__ import annotations

import math
import re

_NUMBER = r"\d+(?:\.\d+)?(?:e[+-]?\d+)?"
_CELL = re.compile(
    rf"^(?:memory:)?\s*(?:about|approx\.?|approximately|ca\.?|circa|up to|[~≈<>≤≥=])*\s*(?P<low>{_NUMBER})\s*"
    rf"(?P<scale_low>[kmgbt](?![a-z]))?\s*(?:(?:-|–|—|\.\.|to|±)\s*(?P<high>{_NUMBER})\s*)?"
    rf"(?P<scale>[kmgbt](?![a-z]))?\s*(?P<rest>.*)$",
    re.IGNORECASE | re.DOTALL,
)
_SCALE = {"k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9, "t": 1e12}
#: Nothing that a run is described by is larger; beyond this a cell is a mistake.
LARGEST = 1e18


def number_in(text: str, *, binary: bool = False) -> float | None:
    """Return the number that a cell states, the middle of a range, or None; `binary` makes K 1,024."""
    found = _read(text)
    if found is None:
        return None
    low, high, scale, _ = found
    factor = 1024.0 if binary and scale == "k" else 1024.0**2 if binary and scale == "m" else _SCALE.get(scale, 1.0)
    value = (low + high) / 2 * factor
    return value if math.isfinite(value) and abs(value) <= LARGEST else None


def billions_in(text: str) -> float | None:
    """Return a count of parameters in billions: "175", "175B", "760M" and "1.6T" all mean what they say."""
    found = _read(text)
    if found is None:
        return None
    low, high, scale, _ = found
    value = (low + high) / 2 * (_SCALE[scale] / 1e9 if scale else 1.0)
    return value if math.isfinite(value) and 0 < value < 1e6 else None


def counts_tokens(text: str) -> bool:
    """Say whether a batch is stated in tokens: "4M tokens", but not "2,048 (8.4M tokens)", which counts sequences."""
    return bool(re.search(r"tok", re.sub(r"\(.*?\)", "", text), re.IGNORECASE))


def counts_hosts(text: str) -> bool:
    """Say whether a count of GPUs is one of hosts: "8 nodes", but not "64 (8 nodes)" or "64 GPUs, 8 nodes"."""
    return bool(re.match(r"\D*[\d,.]+\s*(?:x\s*)?(?:nodes?|hosts?|servers?|machines?|DGX|HGX)\b", text, re.IGNORECASE))


def _read(text: str) -> tuple[float, float, str, str] | None:
    plain = re.sub(r"(?<=\d)[,_](?=\d{3})", "", text.strip()).replace("\u202f", "").replace("\xa0", " ")
    found = _CELL.match(plain)
    if not found or re.match(r"[x×*/]\s*\d", found["rest"].strip(), re.IGNORECASE):
        return None
    low = float(found["low"])
    high = float(found["high"]) if found["high"] and "±" not in plain else low
    scale = (found["scale"] or found["scale_low"] or "").lower()
    return low, high, scale, found["rest"]
