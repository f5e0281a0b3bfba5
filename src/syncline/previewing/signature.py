"""The name of a kernel's signature: the same on every rank, in every capture and where it is timed."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping

_NUMBERED = re.compile(r'"cuda:\d+"')


def signature_key(op: str, args: object, kwargs: Mapping[str, object], tf32: bool) -> str:
    """Return a name that two kernels share when they are called with the same shapes, types, strides and options."""
    text = json.dumps([op, args, kwargs, tf32], sort_keys=True)
    return hashlib.sha256(_NUMBERED.sub('"cuda"', text).encode()).hexdigest()[:20]
