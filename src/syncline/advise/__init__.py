"""What to set for NCCL on a cluster, with the reason of each line, and whether a log shows that it took effect."""

from __future__ import annotations

from syncline.advise.bundle import Bundle, bundle
from syncline.advise.effect import Effect, check_effect

__all__ = ["Bundle", "Effect", "bundle", "check_effect"]
