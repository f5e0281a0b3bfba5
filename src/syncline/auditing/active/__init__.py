"""`syncline audit --active`: bounded tests that load the parts, against what this part should give.

Everything else an audit does is reading. These take seconds, can be interrupted, leave nothing behind, and do not
start on a host that is at work (`busy.py`) unless `anyway` is set. `gpu.py` loads GPUs through torch in a process of
its own; `host.py` processors, memory, disks and mounts; `tools.py` runs what the site has installed: perftest, DCGM,
IPMI.
"""

from __future__ import annotations

from syncline.auditing.active import gpu, host, tools

ACTIVE_RULES = {rule.id: rule for subject in (gpu, host, tools) for rule in subject.RULES}
