"""The shape of a model: what its layers are, how many parameters they hold and how much arithmetic they need.

    shape = model("llama3-70b")
    shape.params                          # 70,553,706,496
    shape.flops_per_token(8192)           # forward and backward, causal attention halved

A transformer is described by a dozen numbers; models that are not (ResNet-50, a DLRM) are lists of layers, see
`layer_list.py`. Fields that a model does not have are zero.
"""

from __future__ import annotations

from pydantic import Field, model_validator

from syncline.fabric.topology.network import Strict


class Mla(Strict):
    """Multi-head latent attention: queries and keys pass through low-rank bottlenecks."""

    q_rank: int = Field(ge=0, description="0: queries are not compressed")
    kv_rank: int = Field(ge=1)
    rope_size: int = Field(ge=0, description="part of the key shared by all heads")
    nope_size: int = Field(ge=1, description="part of query and key of each head that has no position")


class Experts(Strict):
    """A mixture of experts: how many, how many a token visits, how wide they are, and which layers have them."""

    experts: int = Field(ge=2)
    top_k: int = Field(ge=1)
    ffn: int = Field(ge=1)
    shared_ffn: int = Field(default=0, ge=0, description="width of what every token visits besides")
    dense_layers: int = Field(default=0, ge=0, description="layers that keep an ordinary feed-forward block")

    @model_validator(mode="after")
    def _fewer_chosen(self) -> Experts:
        if self.top_k > self.experts:
            raise ValueError(f"a token visits {self.top_k} experts but there are {self.experts}; lower top_k")
        return self


class Shape(Strict):
    """A transformer. `heads` share `kv_heads` keys; `head_size` defaults to hidden / heads."""

    name: str = "model"
    layers: int = Field(ge=1, le=10_000)
    hidden: int = Field(ge=1, le=10_000_000)
    heads: int = Field(ge=1, le=1_000_000)
    kv_heads: int = Field(default=0, ge=0, description="0: as many as heads")
    head_size: int = Field(default=0, ge=0, description="0: hidden / heads")
    value_size: int = Field(default=0, ge=0, description="0: as head_size")
    ffn: int = Field(default=0, ge=0, description="0: 4 x hidden")
    gated: bool = False
    vocab: int = Field(ge=1)
    tied: bool = Field(default=False, description="input and output embedding are one matrix")
    causal: bool = True
    positions: int = Field(default=0, ge=0, description="learned positions; 0 where positions are computed")
    biases: bool = Field(default=False, description="linear layers have biases")
    qkv_biases: bool = False
    norm_biases: bool = False
    norms: int = Field(default=2, ge=0, le=8, description="normalisations of the hidden size in one layer")
    qk_norm: bool = False
    extra_params: int = Field(default=0, ge=0, description="parameters that the other fields do not count")
    window: int = Field(default=0, ge=0, description="sliding window of the layers that have one")
    window_share: float = Field(default=0.0, ge=0, le=1)
    mla: Mla | None = None
    moe: Experts | None = None
    source: str = ""

    @model_validator(mode="after")
    def _whole(self) -> Shape:
        if not self.head_size and self.hidden % self.heads:
            raise ValueError(
                f"hidden size {self.hidden} does not divide by {self.heads} heads; give `head_size`, "
                f"or {nearest_divisor(self.hidden, self.heads)} heads"
            )
        if self.heads % (self.kv_heads or self.heads):
            raise ValueError(f"{self.heads} heads do not share {self.kv_heads} key heads evenly")
        if self.moe and self.moe.dense_layers > self.layers:
            raise ValueError(f"{self.moe.dense_layers} dense layers, but the model has {self.layers}")
        return self

    # Widths with the defaults filled in

    @property
    def qk_size(self) -> int:
        """Size of one head's query."""
        if self.mla:
            return self.mla.nope_size + self.mla.rope_size
        return self.head_size or self.hidden // self.heads

    @property
    def v_size(self) -> int:
        """Size of one head's value."""
        return self.value_size or (self.mla.nope_size if self.mla else self.qk_size)

    @property
    def num_kv_heads(self) -> int:
        return self.kv_heads or self.heads

    @property
    def ffn_size(self) -> int:
        return self.ffn or 4 * self.hidden

    @property
    def moe_layers(self) -> int:
        """Layers that have experts."""
        return self.layers - self.moe.dense_layers if self.moe else 0

    # Parameters

    @property
    def attention_params(self) -> int:
        """Parameters of one layer's attention, without normalisation."""
        out = self.heads * self.v_size * self.hidden
        if self.mla:
            m = self.mla
            queries = self.heads * self.qk_size
            q = self.hidden * m.q_rank + m.q_rank * queries + m.q_rank if m.q_rank else self.hidden * queries
            kv = self.hidden * (m.kv_rank + m.rope_size) + m.kv_rank * self.heads * (m.nope_size + self.v_size)
            return q + kv + m.kv_rank + out
        width = (self.heads + self.num_kv_heads) * self.qk_size + self.num_kv_heads * self.v_size
        biases = width * (self.biases or self.qkv_biases) + self.hidden * self.biases
        return self.hidden * width + out + biases + 2 * self.qk_size * self.qk_norm

    def block_params(self, width: int) -> int:
        """Return the parameters of one feed-forward block of that width."""
        return (3 if self.gated else 2) * self.hidden * width + self.biases * (width * (1 + self.gated) + self.hidden)

    @property
    def dense_ffn_params(self) -> int:
        return self.block_params(self.ffn_size)

    @property
    def expert_params(self) -> int:
        """Parameters of all routed experts of one layer."""
        return self.moe.experts * self.block_params(self.moe.ffn) if self.moe else 0

    @property
    def shared_params(self) -> int:
        """Parameters of one expert layer that every token passes besides attention: shared expert and router."""
        if not self.moe:
            return 0
        shared = self.block_params(self.moe.shared_ffn) if self.moe.shared_ffn else 0
        return shared + self.moe.experts * self.hidden

    @property
    def norm_params(self) -> int:
        return self.norms * self.hidden * (1 + self.norm_biases)

    @property
    def embedding_params(self) -> int:
        """Parameters of the input embedding and of learned positions."""
        return (self.vocab + self.positions) * self.hidden

    @property
    def head_params(self) -> int:
        """Parameters of the output layer; 0 where it is the input embedding."""
        return 0 if self.tied else self.vocab * self.hidden

    @property
    def params(self) -> int:
        """All parameters."""
        layers = self.layers * (self.attention_params + self.norm_params)
        layers += (self.layers - self.moe_layers) * self.dense_ffn_params
        layers += self.moe_layers * (self.expert_params + self.shared_params)
        final = self.hidden * (1 + self.norm_biases)
        return layers + final + self.embedding_params + self.head_params + self.extra_params

    @property
    def active_params(self) -> int:
        """Parameters that one token meets."""
        idle = 0
        if self.moe:
            idle = self.moe_layers * (self.moe.experts - self.moe.top_k) * self.block_params(self.moe.ffn)
        return self.params - idle

    # Arithmetic

    def mean_span(self, sequence: int) -> float:
        """Return how many keys a query meets on average over layers and positions."""
        full = sequence / 2 if self.causal else float(sequence)
        if not self.window_share:
            return full
        inside = min(float(self.window), full)
        return (1 - self.window_share) * full + self.window_share * inside

    def flops_per_token(self, sequence: int) -> float:
        """Return forward and backward operations of one token: 6 per matrix element met, causal attention halved.

        The output layer counts, the input embedding (a lookup) does not; recomputed work does not. This is the
        convention of Megatron-Bridge, and the one behind every `mfu` that syncline prints.
        """
        matrices = self.active_params - self.embedding_params - self.extra_params
        matrices += self.vocab * self.hidden if self.tied else 0
        attention = 2 * self.mean_span(sequence) * self.heads * (self.qk_size + self.v_size) * self.layers
        return 6.0 * matrices + 3.0 * attention


def nearest_divisor(number: int, wanted: int) -> int:
    """Return the divisor of `number` closest to `wanted`."""
    return min((d for d in range(1, number + 1) if number % d == 0), key=lambda d: (abs(d - wanted), d))
