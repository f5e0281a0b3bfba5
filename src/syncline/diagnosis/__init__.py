"""From logs of any size to what went wrong first: the engine of `syncline.logs`, NCCL's settings and the next command.

diagnosis = diagnose(["job.log", "dmesg.txt.gz"])
for cause in diagnosis.causes:
    cause.observed, cause.evidence, [effect.rule for effect in cause.effects]
"""

from __future__ import annotations

from syncline.diagnosis.diagnose import Diagnosis, diagnose
from syncline.logs.causes import Cause
from syncline.logs.read_rules import read_rules, shipped_rules
from syncline.logs.rule import LogRule

__all__ = ["Cause", "Diagnosis", "LogRule", "diagnose", "read_rules", "shipped_rules"]
