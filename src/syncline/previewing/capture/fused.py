"""Kernels of a GPU alone: which one attention, norms and recurrent layers take there, and shapes no fake mode knows."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
import torch.nn.attention.flex_attention
from torch._subclasses.fake_tensor import FakeTensor

from syncline.previewing.capture.log import Log
from syncline.previewing.capture.values import numbers_of, remembered, value_of

aten = torch.ops.aten


def _channels(x: Any) -> Any:
    return x.new_empty(x.shape[1], dtype=torch.float32)


def _stats(x: Any, *_: Any, **__: Any) -> Any:
    return _channels(x), _channels(x)


def _reduce(grad: Any, x: Any, mean: Any, invstd: Any, weight: Any, *_: Any) -> Any:
    return _channels(x), _channels(x), torch.empty_like(weight), torch.empty_like(weight)


def _rms(x: Any, normalized: Any, *_: Any) -> Any:
    rows = [*x.shape[: x.ndim - len(normalized)], *(1 for _ in normalized)]
    return torch.empty_like(x), x.new_empty(rows, dtype=torch.float32)


def _rms_backward(grad: Any, x: Any, normalized: Any, rstd: Any, weight: Any, *_: Any) -> Any:
    return torch.empty_like(x), None if weight is None else torch.empty_like(weight)


RECURRENT = ("rnn_relu", "rnn_tanh", "lstm", "gru")
"""Recurrent layers, in the order of cuDNN's modes."""
RESERVED = {0: 2.7, 1: 2.7, 2: 8.7, 3: 6.7}
"""Numbers that cuDNN keeps of a cell for the backward: two for each gate and a part (as measured of a GRU)."""


def _rnn(
    x: Any, weight: Any, stride: int, weight_buf: Any, hx: Any, cx: Any, mode: int, hidden: int, projected: int,
    layers: int, batch_first: bool, dropout: float, train: bool, bidirectional: bool, *_: Any,
) -> Any:  # fmt: skip
    each = 2 if bidirectional else 1
    cells = x.shape[0] * x.shape[1] * layers * each * hidden
    reserve = x.new_empty(round(RESERVED[mode] * cells * x.element_size()) if train else 0, dtype=torch.uint8)
    out = x.new_empty([*x.shape[:2], each * (projected or hidden)])
    return out, torch.empty_like(hx), x.new_empty(0) if cx is None else torch.empty_like(cx), reserve, weight_buf


def _rnn_backward(x: Any, weight: Any, stride: int, weight_buf: Any, hx: Any, cx: Any, *_: Any) -> Any:
    grads = [torch.empty_like(each) for each in weight]
    return torch.empty_like(x), torch.empty_like(hx), x.new_empty(0) if cx is None else torch.empty_like(cx), grads


def _packed(x: Any, lengths: Any, batch_first: bool) -> Any:
    """Sequences of unknown length are as long as the longest: no row is padding."""
    batch, steps = x.shape[:2] if batch_first else (x.shape[1], x.shape[0])
    known = numbers_of(lengths) or [steps] * batch
    sizes = [sum(length > step for length in known) for step in range(max(known))]
    return x.new_empty([sum(sizes), *x.shape[2:]]), remembered(torch.empty(len(sizes), dtype=torch.int64), sizes)


def _repeated(repeats: Any, *_: Any, output_size: int | None = None, **__: Any) -> Any:
    known = numbers_of(repeats)
    rows = sum(known) if known else int(value_of(repeats) * repeats.numel())
    return repeats.new_empty(rows if output_size is None else output_size)


def _aligned(logs: Any, targets: Any, *_: Any, **__: Any) -> Any:
    steps, batch = logs.shape[0], logs.shape[1] if logs.ndim == 3 else 1
    longest = targets.shape[1] if targets.ndim == 2 else math.ceil(targets.numel() / batch)
    return logs.new_empty(batch), logs.new_empty([batch, steps, 2 * longest + 1])


def _least_squares(a: Any, b: Any, *_: Any, **__: Any) -> Any:
    found = b.new_empty([*b.shape[:-2], a.shape[-1], *b.shape[-1:]])
    return found, b.new_empty(0), b.new_empty(0, dtype=torch.int64), b.new_empty(0)


def _quantized(x: Any, *_: Any) -> Any:
    return torch.empty_like(x), torch.empty_like(x, dtype=torch.bool)


def _margins(x: Any, target: Any, reduction: int) -> Any:
    return x.new_empty(x.shape[:-1] if reduction == 0 else ()), torch.empty_like(x)


SHAPES = {
    aten._cudnn_rnn: _rnn,
    aten._cudnn_rnn_backward: _rnn_backward,
    aten._fused_rms_norm: _rms,
    aten._fused_rms_norm_backward: _rms_backward,
    aten.batch_norm_stats: _stats,
    aten.batch_norm_gather_stats_with_counts: _stats,
    aten.batch_norm_gather_stats: _stats,
    aten.batch_norm_elemt: lambda x, *_: torch.empty_like(x),
    aten.batch_norm_backward_reduce: _reduce,
    aten.batch_norm_backward_elemt: lambda grad, *_: torch.empty_like(grad),
    aten.histc: lambda x, bins=100, *_, **__: x.new_empty(bins),
    aten.bincount: lambda x, weights=None, minlength=0: x.new_empty(minlength or 1, dtype=torch.int64),
    **dict.fromkeys(
        (aten._standard_gamma, aten._standard_gamma_grad, aten._sample_dirichlet, aten._dirichlet_grad),
        lambda x, *_, **__: torch.empty_like(x),
    ),
    **dict.fromkeys((aten._fused_sgd_, aten._fused_adagrad_), lambda *_, **__: None),
    aten._pack_padded_sequence: _packed,
    aten._pack_padded_sequence_backward: lambda grad, size, *_: grad.new_empty(size),
    aten.repeat_interleave: _repeated,
    aten._ctc_loss: _aligned,
    aten._ctc_loss_backward: lambda grad, logs, *_: torch.empty_like(logs),
    aten.linalg_lstsq: _least_squares,
    aten.fake_quantize_per_tensor_affine_cachemask: _quantized,
    aten.fake_quantize_per_channel_affine_cachemask: _quantized,
    aten.multilabel_margin_loss_forward: _margins,
    aten.multilabel_margin_loss_backward: lambda grad, x, *_: torch.empty_like(x),
}
"""What an operator gives: of builds for CUDA alone, or with as many numbers as values decide."""


def prepare(log: Log) -> None:
    """Let attention, RMS normalisation, dropout and a product with a bias take the kernel that a GPU would.

    The functions are replaced: a function mode is off inside of functions that it was asked about, as in the backward
    that runs a checkpointed forward again.
    """
    functional: Any = torch.nn.functional
    attend, normalise = functional.scaled_dot_product_attention, functional.rms_norm
    multiply, drop = functional.linear, functional.dropout

    def attention(*args: Any, **kwargs: Any) -> Any:
        return _attention(attend, *args, **kwargs)

    def linear(input: Any, weight: Any, bias: Any = None) -> Any:
        plain = (
            type(input) is FakeTensor and input.is_cuda and input.is_contiguous() and not hasattr(weight, "placements")
        )
        if bias is None or input.ndim != 3 or not plain:
            return multiply(input, weight, bias)
        return torch.addmm(bias, input.flatten(0, 1), weight.t()).unflatten(0, input.shape[:2])  # as CUDA's own does

    def rms_norm(input: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Any:
        alike = weight is None or weight.dtype is input.dtype  # else torch takes it apart
        if type(input) is FakeTensor and input.is_cuda and alike:
            return torch.ops.aten._fused_rms_norm.default(input, normalized_shape, weight, eps)[0]
        return normalise(input, normalized_shape, weight, eps)

    def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        fused = type(input) is FakeTensor and input.is_cuda and training and 0 < p < 1 and not inplace
        return torch.native_dropout(input, p, True)[0] if fused else drop(input, p, training, inplace)

    functional.scaled_dot_product_attention, functional.rms_norm, functional.linear = attention, rms_norm, linear
    functional.dropout = dropout
    _flexible(log)
    inverse = torch.istft
    torch.istft = lambda spectra, *given, **named: (_istft if _on_gpu(spectra) else inverse)(spectra, *given, **named)
    torch.Tensor.istft = torch.istft  # type: ignore[method-assign, assignment]
    for mode, name in enumerate(RECURRENT):
        setattr(torch._VF, name, _recurrent(getattr(torch._VF, name), mode))
    unpack = torch._VF._pad_packed_sequence
    setattr(torch._VF, unpack.__name__, lambda data, *given: (_padded if _on_gpu(data) else unpack)(data, *given))


def _istft(
    spectra: Any, n_fft: int, hop_length: int | None = None, win_length: int | None = None, window: Any = None,
    center: bool = True, normalized: bool = False, onesided: bool | None = None, length: int | None = None,
    return_complex: bool = False,
) -> Any:  # fmt: skip
    """Add windows up; torch's own looks first whether what they add up to is anywhere 0."""
    hop, wide = hop_length or (win_length or n_fft) // 4, win_length or n_fft
    window = torch.ones(wide, device=spectra.device) if window is None else window
    window = torch.nn.functional.pad(window, [(n_fft - wide) // 2, (n_fft - wide + 1) // 2])
    norm, rows = "ortho" if normalized else None, spectra.transpose(-1, -2)
    pieces = (torch.fft.ifft if return_complex else torch.fft.irfft)(rows, n_fft, norm=norm) * window
    whole = n_fft + hop * (pieces.shape[-2] - 1)
    parts = pieces.reshape(-1, *pieces.shape[-2:]).transpose(1, 2)
    weights = (window * window)[None, :, None].expand(1, n_fft, parts.shape[-1])
    fold = partial(torch.nn.functional.fold, output_size=(1, whole), kernel_size=(1, n_fft), stride=(1, hop))
    sound = (fold(parts) / fold(weights)).reshape(*spectra.shape[:-2], whole)
    begin = n_fft // 2 if center else 0
    end = begin + length if length is not None else whole - begin
    return torch.nn.functional.pad(sound[..., begin:end], (0, max(end - whole, 0)))


def _recurrent(func: Any, mode: int) -> Any:
    """Let a recurrent layer be cuDNN's one kernel, as on a GPU."""

    def run(x: Any, *given: Any) -> Any:
        if not _on_gpu(x):
            return func(x, *given)
        if not isinstance(given[2], bool):
            return _as_batch(run, x, *given)
        start, weights, biased, layers, dropout, train, bidirectional, batch_first = given
        states = list(start) if isinstance(start, (list, tuple)) else [start]
        buffer = x.new_empty(0)
        if torch.is_autocast_enabled("cuda"):  # to 16 bits with five of exponent, whatever is asked for elsewhere
            x, *states = (each.half() for each in (x, *states))
            weights = [each.half() for each in weights]
            buffer = x.new_empty(sum(each.numel() for each in weights))
        hidden, projected = states[-1].shape[-1], states[0].shape[-1] if mode == 2 else 0
        found = torch.ops.aten._cudnn_rnn.default(
            x, weights, (4 if biased else 2) + (projected not in (0, hidden)), buffer, states[0],
            states[1] if len(states) > 1 else None, mode, hidden, 0 if projected == hidden else projected, layers,
            batch_first, dropout, train, bidirectional, [], None,
        )  # fmt: skip
        return found[: 1 + len(states)]

    return run


def _as_batch(run: Any, x: Any, sizes: Any, start: Any, *given: Any) -> Any:
    """Run packed sequences as a batch of as many rows whose lengths are equal."""
    rows, steps = x.shape[0], sizes.numel()
    batch, one = math.ceil(rows / steps), not isinstance(start, (list, tuple))
    states = [start] if one else list(start)
    full = torch.nn.functional.pad(x, (0, 0, 0, steps * batch - rows)) if rows % steps else x
    begun = [state[:, :batch] for state in states]
    out, *ends = run(full.unflatten(0, (steps, batch)), begun[0] if one else begun, *given, False)
    last = [end[:, :1].expand_as(state) for end, state in zip(ends, states, strict=True)]
    return out.flatten(0, 1)[:rows], *last


def _padded(data: Any, sizes: Any, batch_first: bool, value: Any, total: int) -> Any:
    """Fill packed sequences up; which of their rows are whose does not count."""
    known = numbers_of(sizes) or [data.shape[0] // max(sizes.numel(), 1)] * sizes.numel()
    steps, batch = max(total, len(known)), known[0]
    lengths = [sum(size > row for size in known) for row in range(batch)]
    behind = [0, 0] * (data.ndim - 1) + [0, steps * batch - data.shape[0]]
    full = torch.nn.functional.pad(data, behind, value=value).unflatten(0, (steps, batch))
    return full.transpose(0, 1) if batch_first else full, torch.tensor(lengths)


def _on_gpu(x: Any) -> bool:
    return type(x) is FakeTensor and x.is_cuda


def _flexible(log: Log) -> None:
    """Let flex attention, which the recorder would not see, be a flash kernel; its mask is not known."""
    home: Any = torch.nn.attention.flex_attention
    flex = home.flex_attention

    def attention(
        query: Any, key: Any, value: Any, score_mod: Any = None, block_mask: Any = None, scale: float | None = None,
        enable_gqa: bool = False, return_lse: bool = False, kernel_options: Any = None, *, return_aux: Any = None,
    ) -> Any:  # fmt: skip
        if type(query) is not FakeTensor or not query.is_cuda:
            more = {"enable_gqa": enable_gqa, "return_lse": return_lse, "return_aux": return_aux}
            return flex(query, key, value, score_mod, block_mask, scale, kernel_options=kernel_options, **more)
        if block_mask is not None:
            log.stand_in("the mask of flex attention", "causal")
        flash = torch.ops.aten._scaled_dot_product_flash_attention.default
        out, sums = flash(query, key, value, 0.0, block_mask is not None, False, scale=scale)[:2]
        if return_aux is not None:
            return out, home.AuxOutput(lse=sums if return_aux.lse else None)
        return (out, sums) if return_lse else out

    home.flex_attention = attention


def _attention(
    func: Any,
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    placed = hasattr(query, "placements")  # of DTensor, which has rules for fused kernels
    if not (placed or type(query) is FakeTensor) or not (query.is_cuda and query.ndim == 4):
        return func(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    if torch.is_autocast_enabled("cuda"):
        query, key, value, attn_mask = map(_autocast, (query, key, value, attn_mask))
    alike = query.shape[-1] == value.shape[-1]  # latent attention has narrower values
    half = query.dtype in (torch.float16, torch.bfloat16)
    if (
        half and alike and attn_mask is None and query.shape[-1] <= 256
    ):  # these kernels read a group's keys and values where they are
        flash = torch.ops.aten._scaled_dot_product_flash_attention.default
        return flash(query, key, value, dropout_p, is_causal, False, scale=scale)[0]
    plain = attn_mask is None or attn_mask.stride(-1) == 1 or attn_mask.shape[-1] == 1
    if not plain:  # no kernel reads such a mask: products, softmax and dropout one by one, in 32 bits
        return func(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    wants: bool = any(t.requires_grad for t in (query, key, value))
    if attn_mask is not None and attn_mask.dtype is torch.bool:
        attn_mask = attn_mask.to(query.dtype)
    learnt = attn_mask is not None and attn_mask.requires_grad
    if half and query.shape[-1] <= 128 and not learnt and torch.cuda.get_device_capability()[0] >= 9:
        cudnn = torch.ops.aten._scaled_dot_product_cudnn_attention.default
        return cudnn(query, key, value, attn_mask, wants, dropout_p, is_causal, scale=scale)[0]
    if enable_gqa and key.shape[1] != query.shape[1]:
        repeat = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(repeat, 1), value.repeat_interleave(repeat, 1)
    efficient = torch.ops.aten._scaled_dot_product_efficient_attention.default
    if attn_mask is not None:
        attn_mask = attn_mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
    return efficient(query, key, value, attn_mask, wants, dropout_p, is_causal, scale=scale)[0]


def _autocast(tensor: Any) -> Any:
    """Return what autocast makes of an operand of attention: rotated queries and keys are wider than values."""
    narrows = tensor is not None and tensor.is_floating_point() and tensor.dtype is not torch.float64
    return tensor.to(torch.get_autocast_dtype("cuda")) if narrows else tensor
