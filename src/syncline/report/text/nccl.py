"""Advice for NCCL in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from syncline.advice.bundle import settings_table
from syncline.questions.nccl import Advice, EffectCheck

if TYPE_CHECKING:
    from syncline.advice import Bundle, Effect
    from syncline.logs.source import Unread


def advice_lines(made: Bundle, written: Sequence[Path] = ()) -> list[str]:
    """Return variables, tuner rows and files, each with its reason."""
    size = f"{made.num_hosts:,} hosts x {made.gpus_per_host} GPUs"
    lines = [
        f"{made.cluster}: {size}, NCCL {made.nccl}, {', '.join(made.collectives)}",
        "",
        *settings_table(made.settings),
        "",
    ]
    for row in made.tuner:
        lines += [row.line, f"    why: {row.reason}"]
    lines += [""] if made.tuner else []
    lines += [f"file {name}: {len(text.splitlines())} lines" for name, text in made.files.items() if not written]
    lines += [f"wrote {path}" for path in written]
    lines += [f"no {name}: {why}" for name, why in made.skipped.items()]
    lines += [f"assumed: {text}" for text in made.assumed]
    return lines


def effect_lines(effects: Sequence[Effect], unread: Sequence[Unread]) -> list[str]:
    """Return what took effect and the lines of the log that show it."""
    lines = []
    for effect in effects:
        lines.append(f"{effect.state.upper():8}{effect.text}")
        lines += [f"          {line[:150]}" for line in effect.evidence[: 1 if effect.state == "yes" else 3]]
    lines += [f"not read: {item.path}: {item.reason}" for item in unread]
    return lines


def text(answer: Advice | EffectCheck, width: int) -> Iterable[str]:
    """Return what to set for NCCL, or whether it took effect."""
    match answer:
        case Advice():
            return advice_lines(answer.bundle)
        case EffectCheck():
            return effect_lines(answer.effects, answer.unread)
