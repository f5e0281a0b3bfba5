"""What an expert would try: each change by itself, then the best together, priced as what-ifs are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from syncline.errors import SynclineError
from syncline.previewing.exposed import exposed_s
from syncline.previewing.what_if import WhatIfSetting

TIE = 0.01
"""Of the step: changes that differ by less are one to a preview."""
RISKS = {
    "codec": "lossy: watch the loss beside a run without it",
    "compiled": "compiles anew for every new shape; graph breaks save less",
    "shard": "every host holds a whole copy of parameters, gradients and optimizer state",
    "bucket": "larger buckets begin later, smaller ones cost calls",
    "algorithm": "NCCL chooses by itself; a forced one may be slower at other sizes",
}
HOW = {
    "codec": "syncline.torch.synchronize(model, codec=...)",
    "compiled": "model = torch.compile(model)",
    "shard": 'fully_shard(..., mesh=init_device_mesh("cuda", (hosts, GPUs of a host)))',
    "bucket": "DistributedDataParallel(..., bucket_cap_mb=...)",
    "algorithm": "NCCL_ALGO",
}


@dataclass(frozen=True)
class Suggestion:
    """A change that saves time: how much, what it costs in memory, how it is made and what it risks."""

    change: str
    step_time_s: float
    exposed_s: float
    saves: float
    """Of the step as it is."""
    memory_bytes: int
    fits: bool
    ties: bool
    """Whether it takes as long as the suggestion before it."""
    how: str
    risk: str


def candidates(setting: WhatIfSetting) -> tuple[str, ...]:
    """Return the changes that a script leaves room for."""
    first = setting.captures[0]
    found = []
    if first.facts.get("sharded") == "everywhere":
        found.append("shard=host")
    if first.world > 1:
        found += [f"codec={name}" for name in ("bf16", "int8") if name != setting.network.codec]
    if cap := int(first.facts.get("bucket_bytes", 0)):
        found += [f"bucket={4 * cap >> 20}MiB", f"bucket={cap >> 12}KiB"]
    if first.on_cpu:
        return tuple(found)
    if first.world > 1:
        found += ["algorithm=ring", "algorithm=tree"]
    if not any(op.kind == "kernel" and isinstance(op.extra, list) and op.extra[0] for op in first.ops):
        found.append("compiled=yes")
    return tuple(found)


def suggest(setting: WhatIfSetting, tell: Callable[[str], None] = lambda _: None) -> tuple[Suggestion, ...]:
    """Return what saves time, best first: single changes, and the best of each kind added one after the other."""
    now_s = setting.executed.step_time_s
    rows: dict[str, WhatIfSetting] = {}

    def tried(change: str, base: WhatIfSetting, name: str) -> WhatIfSetting | None:
        tell(f"trying {name}")
        try:
            rows[name] = base.changed(change)
            _ = rows[name].executed
        except SynclineError:  # the script does not run so
            rows.pop(name, None)
        return rows.get(name)

    single = {each: tried(each, setting, each) for each in candidates(setting)}
    saving = [
        (found.executed.step_time_s, each)
        for each, found in single.items()
        if found is not None and found.executed.step_time_s < (1 - TIE) * now_s
    ]
    base, name = setting, ""
    while saving:
        tries = [(found, each) for _, each in sorted(saving) if (found := _added(each, base, name, rows, tried))]
        best = min(tries, key=lambda pair: pair[0].executed.step_time_s, default=None)
        if best is None or best[0].executed.step_time_s > (1 - TIE) * base.executed.step_time_s:
            break
        base, name = best[0], ",".join(filter(None, (name, best[1])))
        kind = best[1].partition("=")[0]
        saving = [row for row in saving if row[1].partition("=")[0] != kind]
    return _ranked(rows, now_s)


def _added(
    change: str,
    base: WhatIfSetting,
    name: str,
    rows: dict[str, WhatIfSetting],
    tried: Callable[[str, WhatIfSetting, str], WhatIfSetting | None],
) -> WhatIfSetting | None:
    """Return a setting with one change more; one that was tried already is not run again."""
    both = ",".join(filter(None, (name, change)))
    return rows.get(both) or tried(change, base, both)


def _ranked(rows: dict[str, WhatIfSetting], now_s: float) -> tuple[Suggestion, ...]:
    found: list[Suggestion] = []
    order = sorted(rows.items(), key=lambda row: (not row[1].memory.fits, row[1].executed.step_time_s))
    for name, setting in order:
        step_s = setting.executed.step_time_s
        if step_s > (1 - TIE) * now_s:
            continue
        kinds = [change.partition("=")[0] for change in name.split(",")]
        ties = bool(found) and found[-1].fits == setting.memory.fits and step_s < (1 + TIE) * found[-1].step_time_s
        found.append(
            Suggestion(
                name, step_s, exposed_s(setting.executed), 1 - step_s / now_s, int(setting.memory.peak_bytes),
                setting.memory.fits, ties, "; ".join(HOW[kind] for kind in kinds),
                "; ".join(RISKS[kind] for kind in kinds),
            )
        )  # fmt: skip
    return tuple(found)
