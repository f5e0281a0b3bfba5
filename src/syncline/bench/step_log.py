"""Step times in the log of a training run: Megatron, NeMo, torchtitan, DeepSpeed, Hugging Face, MaxText.

    found = read_step_log(text, "train.log", job, num_gpus)
    found.step_s, found.num_used, found.framework

The median after the warm-up, so that checkpoints, evaluation and a slow first step do not count.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from syncline.errors import DescriptionError
from syncline.workload.job import Job
from syncline.workload.shape import Shape

Floats = npt.NDArray[np.float64]
#: Fewer steps than this after the warm-up say nothing.
FEWEST = 3
#: Steps in the middle half that differ by more than this are no steady state.
UNSTEADY = 0.3
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class StepLog:
    """What a log says of a step."""

    framework: str
    step_s: float
    num_found: int
    num_used: int
    spread: float  # of the middle half, over the median

    def __str__(self) -> str:
        return (
            f"{self.framework}: median of {self.num_used} of {self.num_found} steps, "
            f"half of them within {self.spread / 2:.1%}"
        )


@dataclass(frozen=True)
class _Line:
    """A framework's step line: its pattern (one number), and what that number is."""

    framework: str
    pattern: re.Pattern[str]
    seconds: Callable[[float, Job, int], float]
    is_mean: bool = False  # a running mean or the whole run's: the last one counts, and is enough


def _tokens(job: Job) -> float:
    per_sample = job.batch.sequence if isinstance(job.model, Shape) else 1
    return float(job.batch.global_ * per_sample)


_NUMBER = r"([0-9][0-9,_]*(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)"
#: In order of preference: a log of Megatron-DeepSpeed or of a Trainer over DeepSpeed has several kinds of line.
_LINES = (
    _Line("Megatron", re.compile(rf"elapsed time per iteration \(ms\):\s*{_NUMBER}"), lambda v, job, n: v / 1e3),
    _Line("Megatron", re.compile(rf"elapsed time per iteration \(s\):\s*{_NUMBER}"), lambda v, job, n: v),
    _Line("NeMo", re.compile(rf"train_step_timing in s\s*[:=]\s*{_NUMBER}"), lambda v, job, n: v),
    _Line("Megatron-Bridge", re.compile(rf"Step Time : {_NUMBER}s GPU utilization"), lambda v, job, n: v),
    _Line("MaxText", re.compile(rf"completed step: \d+, seconds:\s*{_NUMBER}"), lambda v, job, n: v),
    _Line(
        "torchtitan",
        re.compile(rf"\bstep:\s*\d+\s+loss:.*?\b(?:tps|wps):\s*{_NUMBER}"),
        lambda v, job, n: _tokens(job) / (v * n),  # tokens a second of one device
    ),
    _Line("DeepSpeed", re.compile(rf"steps:\s*\d+ .*?iter time \(s\):\s*{_NUMBER}"), lambda v, job, n: v),
    _Line("DeepSpeed", re.compile(rf"CurrSamplesPerSec={_NUMBER}"), lambda v, job, n: job.batch.global_ / v),
    _Line(
        "Hugging Face Trainer",
        re.compile(rf"['\"]train_steps_per_second['\"]:\s*['\"]?{_NUMBER}"),
        lambda v, job, n: 1 / v, is_mean=True,
    ),
    _Line(
        "progress bar", re.compile(rf"\|\s*\d+/\d+ \[[^\]]*?,\s*{_NUMBER}s/it"), lambda v, job, n: v, is_mean=True
    ),
    _Line(
        "progress bar", re.compile(rf"\|\s*\d+/\d+ \[[^\]]*?,\s*{_NUMBER}it/s"), lambda v, job, n: 1 / v, is_mean=True
    ),
)  # fmt: skip
_BATCH = re.compile(r"glo(?:ba|ab)l[ _]batch[ _]size:?\s*=?\s*([0-9]+)", re.IGNORECASE)


def read_step_log(text: str, where: str, job: Job, num_gpus: int) -> StepLog:
    """Return the step time that a log tells of a job on so many GPUs."""
    plain = _ANSI.sub("", text)
    for line in _LINES:
        values = np.array([float(v.replace(",", "").replace("_", "")) for v in line.pattern.findall(plain)])
        values = values[values > 0]
        if len(values):
            _check_batch(plain, where, job)
            seconds = np.array([line.seconds(float(v), job, num_gpus) for v in values])
            return _steady(line, seconds, where)
    raise DescriptionError(
        "no step line was found.", where=where,
        detail="Known are those of Megatron, NeMo, torchtitan, DeepSpeed, Hugging Face's Trainer and MaxText.",
        hint="Give the log of rank 0, or the time itself: --measured 4.6s.",
    )  # fmt: skip


def _steady(line: _Line, seconds: Floats, where: str) -> StepLog:
    if line.is_mean:
        return StepLog(line.framework, float(seconds[-1]), len(seconds), 1, 0.0)
    used = seconds[min(max(2, len(seconds) // 10), 20) :]  # compilation and asynchronous dispatch come first
    if len(used) < FEWEST:
        raise DescriptionError(
            f"the log has {len(seconds)} steps, of which {len(used)} come after the warm-up; {FEWEST} are needed.",
            where=where, hint="Let it run for twenty steps, or give the time itself: --measured 4.6s.",
        )  # fmt: skip
    low, middle, high = np.quantile(used, [0.25, 0.5, 0.75])
    spread = float((high - low) / middle)
    if spread > UNSTEADY:
        raise DescriptionError(
            f"the steps of the log are not steady: half of them lie between {low:.4g} and {high:.4g} s.",
            where=where, hint="Give a part of the log that is, or the time itself: --measured 4.6s.",
        )  # fmt: skip
    return StepLog(line.framework, float(middle), len(seconds), len(used), spread)


def _check_batch(text: str, where: str, job: Job) -> None:
    batches = {int(found) for found in _BATCH.findall(text)}
    if batches and job.batch.global_ not in batches:
        shown = ", ".join(f"{value:,}" for value in sorted(batches)[:3])
        raise DescriptionError(
            f"the log has a global batch of {shown}, the job {job.batch.global_:,}.",
            where=where, hint="Describe the job that was run: `batch: {global: ...}`.",
        )  # fmt: skip
