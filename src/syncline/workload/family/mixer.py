"""What mixes tokens without attention: the parameters of one layer's mixer, its state and its recurrence.

Sizes follow the papers and `transformers`' own modules, which tests count them against.
"""

from __future__ import annotations

from syncline.workload.family.keys import Config, whole
from syncline.workload.shape import Mixer

#: Tokens of one chunk, inside which a recurrence is computed as attention: Mamba 2's and the gated delta rule's.
CHUNK = 128


def _chunked(heads: int, keys: int, values: int) -> float:
    """Return the forward operations of a token: attention to half a chunk, and the state read and written."""
    return heads * (CHUNK * (keys + values) + 4.0 * keys * values)


def mamba(data: Config, layers: int, hidden: int, *, normed: bool = False) -> Mixer:
    """Return Mamba's selective state space: a scan that no matrix unit helps, 9 operations a channel and state."""
    inner = whole(data, "mamba_intermediate_size") or whole(data, "mamba_expand", otherwise=2) * hidden
    if not any(key.startswith("mamba_") for key in data):
        inner = whole(data, "intermediate_size") or whole(data, "expand", otherwise=2) * hidden
    state = whole(data, "mamba_d_state", "state_size", otherwise=16)
    taps = whole(data, "mamba_d_conv", "conv_kernel", otherwise=4)
    given = data.get("mamba_dt_rank", data.get("time_step_rank"))
    rank = given if isinstance(given, int) else -(-hidden // 16)
    params = 3 * hidden * inner + inner * (taps + 1) + inner * (rank + 2 * state) + (rank + 1) * inner
    params += inner * (state + 1) + normed * (rank + 2 * state)
    return Mixer(
        kind="mamba", layers=layers, params=params, width=inner, state=inner * (state + taps), flops=9.0 * inner * state
    )


def mamba2(data: Config, layers: int, hidden: int, *, beside: bool = False) -> Mixer:
    """Return Mamba 2's state space: one decay a head, computed in chunks."""
    heads = whole(data, "mamba_num_heads", "mamba_n_heads", "n_mamba_heads", "num_heads")
    size = whole(data, "mamba_head_dim", "mamba_d_head", "mamba_headdim", "head_dim", otherwise=64)
    inner = whole(data, "mamba_d_ssm") or (heads * size if heads else 0)
    inner = inner or whole(data, "mamba_expand", "expand", otherwise=2) * hidden
    heads = heads or inner // size
    groups = whole(data, "n_groups", "mamba_n_groups", "mamba_ngroups", otherwise=1)
    state = whole(data, "ssm_state_size", "mamba_d_state", "state_size", otherwise=128)
    taps = whole(data, "conv_kernel", "mamba_d_conv", otherwise=4)
    mixed = inner + 2 * groups * state
    params = hidden * (inner + mixed + heads) + mixed * (taps + 1) + 3 * heads + inner * hidden
    params += inner * (data.get("mamba_rms_norm") is not False)
    return Mixer(
        kind="mamba2", layers=layers, params=params, width=inner, state=inner * state + mixed * taps,
        flops=_chunked(heads, state, inner // heads), beside=beside,
    )  # fmt: skip


def gated_delta(data: Config, layers: int, hidden: int) -> Mixer:
    """Return the gated delta rule of Qwen3-Next and Qwen3.5."""
    heads, size = whole(data, "linear_num_value_heads"), whole(data, "linear_value_head_dim", otherwise=128)
    key = whole(data, "linear_key_head_dim", otherwise=128)
    keys, values = whole(data, "linear_num_key_heads") * key, heads * size
    taps = whole(data, "linear_conv_kernel_dim", otherwise=4)
    params = hidden * (2 * keys + 2 * values + 2 * heads) + (2 * keys + values) * taps + 2 * heads + size
    params += values * hidden
    return Mixer(
        kind="gated-delta", layers=layers, params=params, width=values,
        state=heads * key * size + (2 * keys + values) * taps, flops=_chunked(heads, key, size),
    )  # fmt: skip


def delta_attention(data: Config, layers: int, hidden: int) -> Mixer:
    """Return Kimi's delta attention: a decay for every channel, from a bottleneck of a head's size."""
    heads, size = whole(data, "num_heads", otherwise=32), whole(data, "head_dim", otherwise=128)
    taps, inner = whole(data, "short_conv_kernel_size", otherwise=4), heads * size
    params = 4 * hidden * inner + 3 * inner * taps + 2 * (hidden + inner) * size + hidden * heads + inner + heads + size
    return Mixer(
        kind="delta-attention", layers=layers, params=params, width=inner, state=inner * size + 3 * inner * taps,
        flops=_chunked(heads, size, size),
    )  # fmt: skip


def lightning(data: Config, layers: int, hidden: int) -> Mixer:
    """Return MiniMax's lightning attention: linear attention with a decay a head and a gate on what it returns."""
    heads = whole(data, "num_attention_heads")
    size = whole(data, "head_dim", otherwise=hidden // max(heads, 1))
    inner = heads * size
    return Mixer(
        kind="lightning", layers=layers, params=5 * hidden * inner + inner, width=inner, state=inner * size,
        flops=_chunked(heads, size, size),
    )  # fmt: skip


def short_convolution(data: Config, layers: int, hidden: int) -> Mixer:
    """Return LFM2's gated convolution over a few tokens."""
    taps = whole(data, "conv_L_cache", otherwise=3)
    return Mixer(
        kind="convolution", layers=layers, params=4 * hidden * hidden + taps * hidden, width=hidden,
        state=taps * hidden, flops=2.0 * taps * hidden,
    )  # fmt: skip


def gated_recurrence(data: Config, layers: int, hidden: int) -> Mixer:
    """Return Griffin's recurrent block (RecurrentGemma): a gated linear recurrence with block-diagonal gates."""
    inner, heads = whole(data, "lru_width", otherwise=hidden), whole(data, "num_attention_heads", otherwise=1)
    taps = whole(data, "conv1d_width", otherwise=4)
    gates = 2 * (inner * inner // heads + inner)
    params = 3 * hidden * inner + 2 * inner + hidden + inner * (taps + 1) + inner + gates
    return Mixer(
        kind="recurrence", layers=layers, params=params, width=inner, state=inner * (1 + taps), flops=10.0 * inner
    )


def time_mixing(data: Config, layers: int, hidden: int) -> Mixer:
    """Return RWKV 4's time mixing, with the receptance of its channel mixing, which no other block has."""
    inner = whole(data, "attention_hidden_size", otherwise=hidden)
    params = 4 * hidden * inner + 2 * inner + 5 * hidden + hidden * hidden
    return Mixer(kind="rwkv", layers=layers, params=params, width=inner, state=5 * inner, flops=12.0 * inner)
