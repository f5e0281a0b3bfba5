"""What the layers of a model compute beside their sizes: parts of its description that no cost depends on.

A job trains another model where these are left at a framework's defaults. Fields hold Llama 2's values unless the
model says otherwise (its `config.json`, or the lists of `models/*.yaml`).
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from syncline.describe.quantity import Strict


class Rotary(Strict):
    """Rotary positions and how they are stretched to a longer context; fields of other kinds stay at 0."""

    base: float = Field(default=10000.0, gt=0)
    share: float = Field(default=1.0, gt=0, le=1, description="part of a head that is rotated")
    local_base: float = Field(default=0.0, ge=0, description="base of the layers with a window; 0: the same")
    skip_every: int = Field(default=0, ge=0, description="every so many layers one has no positions; 0: none")
    kind: str = Field(default="none", description="none, linear, llama3, yarn ... as `rope_type`")
    factor: float = Field(default=1.0, gt=0)
    original: int = Field(default=0, ge=0, description="positions before the stretch")
    low: float = 0.0
    high: float = 0.0
    fast: float = 0.0
    slow: float = 0.0
    mscale: float = 0.0
    mscale_all: float = 0.0
    rounded: bool = Field(default=True, description="bounds of the yarn ramp are whole")


class Router(Strict):
    """How tokens choose their experts."""

    score: Literal["softmax", "sigmoid"] = "softmax"
    normalised: bool = Field(default=True, description="weights of the chosen experts sum to 1")
    groups: int = Field(default=0, ge=0, description="experts are chosen from some of so many groups; 0: from all")
    top_groups: int = Field(default=0, ge=0)
    scale: float = Field(default=1.0, gt=0)
    corrected: bool = Field(default=False, description="a bias that balances, updated without a loss (DeepSeek-V3)")
    biased: bool = Field(default=False, description="the router's matrix has a learned bias")
    shared_gate: bool = Field(default=False, description="a sigmoid gate before the shared expert")
    aux_loss: float = Field(default=0.0, ge=0, description="coefficient of the loss that balances")


class Traits(Strict):
    """The rest of a model's description."""

    norm: Literal["", "rms", "layer", "plain-layer", "none"] = Field(default="", description="'': by norm_biases")
    norm_eps: float = Field(default=1e-5, gt=0)
    norm_offset: bool = Field(default=False, description="the stored weight is added to 1 (Gemma)")
    norm_place: Literal["before", "after", "around"] = "before"
    qk_norm_whole: bool = Field(default=False, description="queries and keys are normalised over all heads")
    parallel: bool = Field(default=False, description="attention and feed-forward block read the same input")
    head_bias: bool = Field(default=False, description="the output layer has a bias")
    activation: str = Field(default="", description="silu, gelu, gelu_tanh, relu ...; '': silu where gated, else gelu")
    activation_limit: float = Field(default=0.0, ge=0, description="inputs of the activation are clamped; 0: not")
    alibi: bool = False
    rotary: Rotary = Rotary()
    full_every: int = Field(default=0, ge=0, description="one layer in so many has no window; 0: by window_share")
    sinks: bool = Field(default=False, description="a learned logit a head takes part in the softmax")
    attention_cap: float = Field(default=0.0, ge=0, description="tanh cap of attention logits; 0: none")
    logit_cap: float = Field(default=0.0, ge=0)
    query_size: float = Field(default=0.0, ge=0, description="scores are divided by its square root; 0: head size")
    embedding_scale: float = Field(default=1.0, gt=0)
    residual_scale: float = Field(default=1.0, gt=0)
    logit_scale: float = Field(default=1.0, gt=0)
    attention_dropout: float = Field(default=0.0, ge=0, lt=1)
    hidden_dropout: float = Field(default=0.0, ge=0, lt=1)
    init_std: float = Field(default=0.02, gt=0)
    router: Router = Router()
