"""From logs of any size to what went wrong first: rules as data, one pass, bounded memory.

diagnosis = diagnose(["job.log", "dmesg.txt.gz"])
for cause in diagnosis.causes:
    cause.finding.observed, cause.finding.evidence, [effect.finding.rule for effect in cause.effects]
"""

from __future__ import annotations

from syncline.diagnosis.causes import Cause
from syncline.diagnosis.diagnose import Diagnosis, diagnose
from syncline.diagnosis.read_rules import read_rules, shipped_rules
from syncline.diagnosis.rule import LogRule

__all__ = ["Cause", "Diagnosis", "LogRule", "diagnose", "read_rules", "shipped_rules"]
