"""Updates of a job: how many, warm-up, learning rate, decay and clipping, where its tokens are known."""

from __future__ import annotations

import math
from dataclasses import dataclass

from syncline.workload.job import Job
from syncline.workload.shape import Shape

#: Of the run's updates: linear warm-up in the first, at most 2,000 of them (arXiv 2401.02954, section 2.3).
WARMUP_SHARE, WARMUP_MOST = 0.01, 2000
#: The rate ends at a tenth of its peak; AdamW as in arXiv 2307.09288, 2401.02954 and 2407.21783.
LEAST, BETAS, EPS, DECAY, CLIP = 0.1, (0.9, 0.95), 1e-8, 0.1, 1.0


@dataclass(frozen=True)
class Updates:
    """The updates of a run and the learning rate over them; None: the job does not say its tokens."""

    iterations: int | None
    warmup: int | None
    peak: float | None

    @property
    def least(self) -> float | None:
        return None if self.peak is None else float(f"{LEAST * self.peak:.2g}")


def updates_of(job: Job, shape: Shape) -> Updates:
    """Return the updates of a job: the rate by the law of arXiv 2401.02954, 0.3118 x FLOP^-0.125, to two digits."""
    if job.tokens is None:
        return Updates(None, None, None)
    iterations = math.ceil(job.tokens / (job.batch.global_ * job.batch.sequence))
    peak = 0.3118 * (job.tokens * shape.flops_per_token(job.batch.sequence)) ** -0.1250
    return Updates(iterations, min(WARMUP_MOST, math.ceil(WARMUP_SHARE * iterations)), float(f"{peak:.2g}"))


def left_of(job: Job, shape: Shape) -> list[str]:
    """Return what of training the files do not decide for their user."""
    found = ["the tokenizer, the data and where checkpoints go"]
    if job.tokens is None:
        found.append("the number of updates and the learning rate: the job does not say its `tokens`")
    else:
        found.append(
            "the learning rate is of a scaling law (arXiv 2401.02954); large published runs took 0.4 to 1 of it"
        )
    assumed = sorted({"norm_eps", "rotary", "init_std"} - (shape.traits.model_fields_set if shape.traits else set()))
    if not shape.source:
        found.append(f"the job gives the model's sizes alone: {', '.join(assumed)} are Llama 2's")
    return found
