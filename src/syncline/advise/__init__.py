"""What to set for NCCL on a cluster, with the reason of each line, and whether a log shows that it took effect."""

from __future__ import annotations

from syncline.advise.bundle import Bundle, bundle
from syncline.advise.effect import Effect, check_effect
from syncline.advise.setting import Setting, recommend
from syncline.advise.tuning import KeptChoice, TunerRow, Tuning, judge, tuner_csv, tuner_rows

__all__ = [
    "Bundle",
    "Effect",
    "KeptChoice",
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
