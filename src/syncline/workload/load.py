"""What is served: requests a second with the lengths of prompts and answers, and how long users may wait.

    kind: serve
    model: llama3-70b
    load: {rate: 20, prompt: {mean: 1500, p99: 8000}, answer: 300}
    slo: {first_token: 1s, between_tokens: 50ms}

A length is a number (all alike) or a log-normal with a mean and a 99th percentile.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any, Literal

from pydantic import Field, model_validator

from syncline.describe.quantity import Seconds, Strict

Z99 = 2.3263


class Length(Strict):
    """A distribution of lengths in tokens."""

    mean: float = Field(ge=1, le=1e7)
    p99: float = Field(ge=1, le=1e7)

    @model_validator(mode="before")
    @classmethod
    def _alike(cls, data: Any) -> Any:
        plain = isinstance(data, (int, float)) and not isinstance(data, bool)
        return {"mean": data, "p99": data} if plain else data

    @model_validator(mode="after")
    def _ordered(self) -> Length:
        # The mean of a log-normal is at most exp(z^2 / 2) below its 99th percentile's reach: sigma would be imaginary.
        if self.p99 < self.mean or math.log(self.p99 / self.mean) > Z99**2 / 2:
            raise ValueError(f"p99 {self.p99:g} is not above the mean {self.mean:g} by a factor of 1 to 14")
        return self

    @property
    def sigma(self) -> float:
        """The width of the logarithm."""
        return Z99 - math.sqrt(max(Z99**2 - 2 * math.log(self.p99 / self.mean), 0.0))

    @property
    def p50(self) -> float:
        return self.mean * math.exp(-(self.sigma**2) / 2)

    def quantile(self, share: float) -> float:
        """Return the length that this share of all is below."""
        z = NormalDist().inv_cdf(min(max(share, 1e-6), 1 - 1e-6))
        return self.p50 * math.exp(self.sigma * z)

    @property
    def square(self) -> float:
        """The mean of the square over the square of the mean."""
        return math.exp(self.sigma**2)


class Load(Strict):
    """Requests a second and their lengths."""

    rate: float = Field(gt=0, le=1e9, description="requests a second, all replicas together")
    prompt: Length
    answer: Length


class Slo(Strict):
    """How long users may wait, at the 99th percentile; left out: as long as it takes."""

    first_token: Seconds | None = None
    between_tokens: Seconds | None = None


class ServingEngine(Strict):
    """What serves: `engine: vllm`, or `{name: vllm, tuned: false}` for one at its defaults."""

    name: Literal["any", "vllm", "sglang", "trtllm"] = "any"
    tuned: bool = Field(default=True, description="its batch, cache and kernels were chosen for the model and the load")

    @model_validator(mode="before")
    @classmethod
    def _named(cls, data: Any) -> Any:
        return {"name": data} if isinstance(data, str) else data
