"""Steps that become longer and stay so are told; pauses, a slow start and a larger batch are not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from syncline.diagnosis import diagnose
from syncline.logs.checks.steps import MAX_STEPS, risen

RULE = "train.steps.slower"


def _megatron(seconds: float, step: int, batch: int = 256) -> str:
    clock = f"02:{step // 60 % 60:02d}:{step % 60:02d}"
    return (
        f"[2026-11-16 {clock}] iteration {step:8d}/  500000 | elapsed time per iteration "
        f"(ms): {seconds * 1e3:.1f} | global batch size: {batch} | lm loss: 2.1\n"
    )


def _observed(path: Path, lines: list[str]) -> list[str]:
    path.write_text("".join(lines), "utf-8")
    return [one.observed for one in diagnose([path]).findings if one.rule == RULE]


def test_a_level_that_rises_and_stays_is_told_with_line_and_time(tmp_path: Path) -> None:
    lines = [_megatron(5.2 if step < 300 else 7.8, step) for step in range(1, 400)]
    (observed,) = _observed(tmp_path / "train.log", lines)
    assert "by 50% (7.8 s, 5.2 s before), since line 300 of" in observed and observed.endswith("02:05:00")


def test_the_end_of_a_long_log_counts(tmp_path: Path) -> None:
    count = 3 * MAX_STEPS
    lines = [_megatron(1.0 if step < 0.9 * count else 1.3, step) for step in range(1, count)]
    assert len(_observed(tmp_path / "train.log", lines)) == 1


@pytest.mark.parametrize("kind", ["pauses", "start", "batch", "noise", "recovered"])
def test_what_is_no_slowdown_is_not_told(kind: str, tmp_path: Path) -> None:
    noise = np.random.default_rng(1).normal(1, 0.02, 400)

    def line(step: int) -> str:
        seconds, batch = 5 * float(noise[step]), 256
        if kind == "pauses" and step % 20 == 0:
            seconds = 60.0
        if kind == "start" and step < 15:
            seconds = 30.0
        if kind == "batch" and step > 200:
            seconds, batch = seconds * 2, 512
        if kind == "recovered" and 150 < step < 200:
            seconds *= 1.5
        return _megatron(seconds, step, batch)

    assert not _observed(tmp_path / "train.log", [line(step) for step in range(1, 400)])


def test_a_link_that_flapped_then_is_the_cause(tmp_path: Path) -> None:
    steps = "".join(_megatron(5.2 if step < 300 else 7.8, step) for step in range(1, 400))
    (tmp_path / "train.log").write_text(steps, "utf-8")
    flap = "".join(
        f"Nov 16 02:04:5{n} gpu-03 kernel: mlx5_core 0000:5e:00.0 eth4: Link {'up' if n % 2 else 'down'}\n"
        for n in range(6)
    )
    (tmp_path / "kern.log").write_text(flap, "utf-8")
    (cause,) = diagnose([tmp_path / "train.log", tmp_path / "kern.log"]).causes
    assert cause.rule == "kernel.link.flap"
    assert [effect.rule for effect in cause.effects] == [RULE]


def test_rates_are_told_too(tmp_path: Path) -> None:
    lines = [f"step: {n:3d}  loss:  2.1  memory: 62GiB(78%)  tps: {3151 if n < 40 else 2000:,}\n" for n in range(1, 60)]
    (observed,) = _observed(tmp_path / "titan.log", lines)
    assert "by 58%, since line 40 of" in observed


def test_where_a_level_rises() -> None:
    assert risen(np.array([1.0] * 20 + [1.2] * 10)) == 20
    assert risen(np.array([1.0] * 20 + [1.05] * 10)) is None
    assert risen(np.array([1.2] * 20 + [1.0] * 10)) is None
    assert risen(np.array([1.0] * 5)) is None
