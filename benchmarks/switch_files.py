"""Switch files of `syncline fabric build` checked by each vendor's own schema: Arista AVD, SONiC YANG, NVUE commands.

    SYNCLINE_SONIC_YANG=yang SYNCLINE_NVUE_COMMANDS=commands.txt python benchmarks/run.py switch_files

`rig/eos_avd.py`, `rig/sonic_yang.py` and `rig/nvue_list.py` say what each schema needs and where to get it; a schema
that is not here is named, and the others are checked.
"""

from __future__ import annotations

from typing import Any

from rig import eos_avd, nvue_list, sonic_yang


def run() -> dict[str, Any]:
    """Return the figures of each vendor, and what was missing."""
    checks = {"eos": eos_avd.run(), "sonic": sonic_yang.run(), "nvue": nvue_list.run()}
    return {**checks, "missing": [why for figures in checks.values() for why in figures.get("missing", ())]}
