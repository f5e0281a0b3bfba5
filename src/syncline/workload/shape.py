"""The shape of a model: what its layers are, how many parameters they hold and how much arithmetic they need.

    shape = model("llama3-70b")
    shape.params                          # 70,553,706,496
    shape.flops_per_token(8192)           # forward and backward, causal attention halved

A transformer is described by a dozen numbers; models that are not (ResNet-50, a DLRM) are lists of layers, see
`layer_list.py`. Fields that a model does not have are zero.
"""

from __future__ import annotations

from pydantic import Field, model_validator

from syncline.describe.quantity import Strict
from syncline.workload.stored import Stored
from syncline.workload.traits import Traits


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
    latent: int = Field(default=0, ge=0, description="size that tokens are brought to before experts; 0: hidden")
    dense_layers: int = Field(default=0, ge=0, description="layers that keep an ordinary feed-forward block")

    @model_validator(mode="after")
    def _fewer_chosen(self) -> Experts:
        if self.top_k > self.experts:
            raise ValueError(f"a token visits {self.top_k} experts but there are {self.experts}; lower top_k")
        return self


class Mixer(Strict):
    """What mixes tokens without attention: state spaces, linear attention, convolutions, recurrences."""

    kind: str
    layers: int = Field(ge=1, description="layers that have it")
    params: int = Field(ge=1, description="parameters of one layer's, without the layer's own normalisation")
    width: int = Field(ge=1, description="channels inside: heads x size of a head")
    state: int = Field(default=0, ge=0, description="numbers that one sequence keeps in one layer, at any length")
    flops: float = Field(default=0.0, ge=0, description="operations of the recurrence per token, forward")
    beside: bool = Field(default=False, description="beside attention in the same layer")


class Tower(Strict):
    """A network that other inputs pass before the language model: its parameters are trained and kept with it."""

    name: str
    params: int = Field(ge=1)


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
    attention_layers: int | None = Field(default=None, ge=0, description="default: all that have no mixer instead")
    ffn_layers: int | None = Field(default=None, ge=0, description="layers with a feed-forward block; default: all")
    query_gate: bool = Field(default=False, description="queries are twice as wide: half gates what attention returns")
    mixers: tuple[Mixer, ...] = ()
    towers: tuple[Tower, ...] = ()
    predict_layers: int = Field(default=0, ge=0, le=16, description="layers that predict further tokens (MTP)")
    stored: Stored | None = Field(default=None, description="how its published weights are kept; default: 16 bits")
    traits: Traits | None = Field(default=Traits(), description="what layers compute; null: unknown beside their sizes")
    source: str = ""

    @model_validator(mode="after")
    def _counted(self) -> Shape:
        found = self.num_attention_layers + sum(mixer.layers for mixer in self.mixers if not mixer.beside)
        if found > self.layers or self.num_ffn_layers > self.layers:
            raise ValueError(f"{found} layers mix tokens, but the model has {self.layers}")
        return self

    @model_validator(mode="after")
    def _whole(self) -> Shape:
        if not self.head_size and not self.mla and self.hidden % self.heads:
            raise ValueError(
                f"hidden size {self.hidden} does not divide by {self.heads} heads; give `head_size`, "
                f"or {nearest_divisor(self.hidden, self.heads)} heads"
            )
        if self.heads % (self.kv_heads or self.heads):
            raise ValueError(f"{self.heads} heads do not share {self.kv_heads} key heads evenly")
        if self.moe and self.moe.dense_layers > self.num_ffn_layers:
            raise ValueError(f"{self.moe.dense_layers} dense layers, but the model has {self.num_ffn_layers}")
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

    # Layers that have a thing

    @property
    def num_attention_layers(self) -> int:
        if self.attention_layers is not None:
            return self.attention_layers
        return self.layers - sum(mixer.layers for mixer in self.mixers if not mixer.beside)

    @property
    def mixing_layers(self) -> int:
        """Layers that mix tokens, by attention or otherwise."""
        return self.num_attention_layers + sum(mixer.layers for mixer in self.mixers if not mixer.beside)

    @property
    def num_ffn_layers(self) -> int:
        return self.layers if self.ffn_layers is None else self.ffn_layers

    @property
    def moe_layers(self) -> int:
        """Layers that have experts."""
        return self.num_ffn_layers - self.moe.dense_layers if self.moe else 0

    @property
    def dense_layers(self) -> int:
        """Layers that have an ordinary feed-forward block."""
        return self.num_ffn_layers - self.moe_layers

    @property
    def hybrid(self) -> bool:
        """Whether layers are of several kinds, or of another than attention and a feed-forward block."""
        return bool(self.mixers) or self.mixing_layers < self.layers or self.num_ffn_layers < self.layers

    # Parameters

    @property
    def qkv_width(self) -> int:
        """Width of what makes queries (and their gate), keys and values."""
        queries = self.heads * (1 + self.query_gate) + self.num_kv_heads
        return queries * self.qk_size + self.num_kv_heads * self.v_size

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
        width = self.qkv_width
        biases = width * (self.biases or self.qkv_biases) + self.hidden * self.biases
        normed = (self.heads + self.num_kv_heads) if self.traits and self.traits.qk_norm_whole else 2 * self.qk_norm
        return self.hidden * width + out + biases + normed * self.qk_size

    def block_params(self, width: int, hidden: int = 0) -> int:
        """Return the parameters of one feed-forward block of that width; its tokens may have another size."""
        hidden = hidden or self.hidden
        return (3 if self.gated else 2) * hidden * width + self.biases * (width * (1 + self.gated) + hidden)

    @property
    def dense_ffn_params(self) -> int:
        return self.block_params(self.ffn_size)

    @property
    def expert_hidden(self) -> int:
        """Size of a token as experts get it."""
        return (self.moe.latent if self.moe else 0) or self.hidden

    @property
    def one_expert_params(self) -> int:
        """Parameters of one routed expert."""
        return self.block_params(self.moe.ffn, self.expert_hidden) if self.moe else 0

    @property
    def expert_params(self) -> int:
        """Parameters of all routed experts of one layer."""
        return self.moe.experts * self.one_expert_params if self.moe else 0

    @property
    def shared_params(self) -> int:
        """Parameters of one expert layer that every token passes besides attention: shared block, router, latent."""
        if not self.moe:
            return 0
        shared = self.block_params(self.moe.shared_ffn) if self.moe.shared_ffn else 0
        return shared + (self.moe.experts + 2 * self.moe.latent) * self.hidden

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
    def head_layers(self) -> float:
        """What the output layer weighs in layers, by the matrices a token meets; predicted tokens with theirs."""
        once = self.vocab * self.hidden
        blocks = self.active_params - self.embedding_params - self.head_params - self.extra_params - self.tower_params
        return (1 + self.predict_layers) * once * self.layers / max(blocks, 1) + self.predict_layers

    @property
    def mixer_params(self) -> int:
        """Parameters of every mixer of every layer."""
        return sum(mixer.layers * mixer.params for mixer in self.mixers)

    @property
    def tower_params(self) -> int:
        return sum(tower.params for tower in self.towers)

    @property
    def predict_dense(self) -> int:
        """Parameters of one such layer, its routed experts not among them."""
        block = self.shared_params if self.moe else self.dense_ffn_params
        return self.attention_params + block + self.norm_params + 2 * self.hidden**2 + 3 * self.hidden

    @property
    def replicated_params(self) -> int:
        """Parameters of the layers, routed experts not among them."""
        layers = self.layers * self.norm_params + self.num_attention_layers * self.attention_params
        layers += self.dense_layers * self.dense_ffn_params + self.moe_layers * self.shared_params
        return layers + self.mixer_params

    @property
    def params(self) -> int:
        """All parameters of the model; those of `predict_layers` are for training alone and not among them."""
        layers = self.replicated_params + self.moe_layers * self.expert_params
        ends = self.embedding_params + self.head_params
        return layers + self.final_params + ends + self.tower_params

    @property
    def final_params(self) -> int:
        """Parameters behind the layers that are no output layer: the last normalisation, and what no field counts."""
        return self.hidden * (1 + self.norm_biases) + self.extra_params

    @property
    def active_params(self) -> int:
        """Parameters that one token meets."""
        idle = 0
        if self.moe:
            idle = self.moe_layers * (self.moe.experts - self.moe.top_k) * self.one_expert_params
        return self.params - idle

    # Arithmetic and memory of attention

    def kept_tokens(self, context: float) -> float:
        """Return how many tokens of a context the mean layer keeps keys and values of: windows forget the rest."""
        return (1 - self.window_share) * context + self.window_share * min(float(self.window), context)

    def mean_span(self, sequence: int) -> float:
        """Return how many keys a query meets on average over layers and positions."""
        full = sequence / 2 if self.causal else float(sequence)
        if not self.window_share:
            return full
        inside = min(float(self.window), full)
        return (1 - self.window_share) * full + self.window_share * inside

    def flops_per_token(self, sequence: int, frozen: bool = False) -> float:
        """Return forward and backward operations of one token: 6 per matrix element met, causal attention halved.

        Weights that are frozen have no gradient of their own, so 4 per element. The output layer counts, the input
        embedding (a lookup) does not; recomputed work does not. This is the convention of Megatron-Bridge, and the one
        behind every `mfu` that syncline prints.
        """
        matrices = self.active_params - self.embedding_params - self.extra_params - self.tower_params
        matrices += self.vocab * self.hidden if self.tied else 0
        each = 2 * self.mean_span(sequence) * self.heads * (self.qk_size + self.v_size)
        scans = sum(mixer.layers * mixer.flops for mixer in self.mixers)
        # A layer that predicts a further token passes the output layer once more.
        routed = self.moe.top_k * self.one_expert_params if self.moe else 0
        matrices += self.predict_layers * (self.predict_dense + routed + self.vocab * self.hidden)
        return (4.0 if frozen else 6.0) * matrices + 3.0 * (
            each * (self.num_attention_layers + self.predict_layers) + scans
        )


def nearest_divisor(number: int, wanted: int) -> int:
    """Return the divisor of `number` closest to `wanted`."""
    return min((d for d in range(1, number + 1) if number % d == 0), key=lambda d: (abs(d - wanted), d))
