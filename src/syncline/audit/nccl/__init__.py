"""What to set for NCCL on a cluster, with the reason of each line, and whether a log shows that it took effect."""

from __future__ import annotations

from syncline.audit.nccl.bundle import Bundle, bundle
from syncline.audit.nccl.effect import Effect, check_effect
from syncline.audit.nccl.setting import Setting, recommend
from syncline.audit.nccl.tuning import Kept, TunerRow, Tuning, judge, tuner_csv, tuner_rows

__all__ = [
    "Bundle",
    "Effect",
    "Kept",
    "Setting",
    "TunerRow",
    "Tuning",
    "bundle",
    "check_effect",
    "judge",
    "recommend",
    "tuner_csv",
    "tuner_rows",
]  # fmt: skip
