"""What to set for NCCL on a cluster, with the reason of each line, and whether a log shows that it took effect."""

from __future__ import annotations

from syncline.advice.bundle import Bundle, bundle
from syncline.advice.effect import Effect, check_effect

__all__ = ["Bundle", "Effect", "bundle", "check_effect"]
