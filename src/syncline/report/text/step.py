"""One step's price, and a job's traffic, as text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

from syncline.describe import units
from syncline.planning.unstated import UnstatedKeys
from syncline.questions.step import (
    DecodePrediction,
    MemoryUse,
    ProfileUse,
    StepPrediction,
    UsedSplit,
    WarmUp,
)
from syncline.report.text.account import account_lines
from syncline.report.text.lines import between, chance_words, interval_lines
from syncline.sim.step.decode import DecodeResult
from syncline.sim.step.executed.execute import CollectiveTime
from syncline.sim.step.executed.execute_trace import TracedCollective
from syncline.sim.step.executed.packets import PacketCounts
from syncline.sim.step.limit import Limit
from syncline.sim.step.storage import Storage
from syncline.sim.uncertainty import Interval

PART_WORDS = {
    "compute": "compute", "tp": "tensor-parallel exchange", "cp": "context-parallel exchange",
    "ep": "expert all-to-all", "host": "waiting for the host", "fsdp": "FSDP gathers and scatters",
    "dp": "gradient exchange", "p2p": "between stages", "bubble": "pipeline bubble", "optimizer": "optimizer",
    "fixed": "once a step, stragglers", "codec": "encoding", "storage": "waiting for storage",
}  # fmt: skip


def step_lines(answer: StepPrediction) -> list[str]:
    """Return the price of a step for people: how long, where the time goes, what is sent, what it assumed."""
    executed = answer.executed
    sure = interval_lines(answer.interval, units.show_time)
    lines = [
        f"{answer.job}: {answer.model} on {answer.gpus:,} x {answer.gpu}, {split_words(answer.parallel)}",
        "",
        *(part for text in answer.assumed_of_cluster for part in _assumed(text)),
        f"  step        {units.show_time(answer.step_time_s)}  ({_how(answer)})",
        *(f"  differs     {cause}" for cause in (executed.differs if executed else ())),
        f"  interval    {sure[0]}",
        *(f"              {line}" for line in sure[1:]),
        *_profile(answer.profile),
        *_warm_up(answer.warm_up),
        f"  throughput  {answer.tokens_per_s:,.0f} {answer.token}s/s, {answer.tokens_per_s_per_gpu:,.1f} a GPU, "
        f"MFU {answer.mfu:.1%} of {answer.mfu_peak_flops / 1e12:,.0f} TFLOP/s",
        f"  memory      {_memory(answer.memory_bytes, answer.fit_chance)}",
        f"              {between(answer.memory_interval, units.show_size)}; {_memory_basis(answer.memory_interval)}",
        *_unstated(answer.unstated),
        f"  limit       {_limit(answer.limit)}",
        "",
        "  where the time goes",
        *account_lines(answer.account, "    "),
    ]
    if (priced := answer.exchanges) is not None and answer.comm_bytes:
        lines.append(
            f"  exchanges   at {priced.library}'s price, as simulate gives it, times {priced.residual:.2f} (residual)"
        )
    if executed is not None:
        lines += executed_lines(executed.collectives)
        lines += packet_lines(executed.packets)
    lines += _sent(answer.comm_bytes)
    lines += _storage(answer.storage)
    lines += [f"  warning: {text}" for text in answer.warnings]
    shown = ", ".join(f"{name} {_word(value)}" for name, value in answer.assumed.items())
    lines += ["", f"  assumed: {shown}", f"  ignores: {', '.join(answer.ignores)}"]
    return lines


def _assumed(text: str) -> list[str]:
    """Return what the cluster's file leaves open, said before the answer that rests on it."""
    return textwrap.wrap(f"  assumed     {text}", 118, subsequent_indent=" " * 14, break_on_hyphens=False)


#: What a key of the job file is called by people.
_KEY_WORDS = {
    "virtual": "virtual stages", "fused_act": "an activation kernel that keeps no product, such as xformers'",
    "allocator": "allocator",
}  # fmt: skip


def _unstated(better: UnstatedKeys | None) -> list[str]:
    """Return what the job does not say and what saying it would give."""
    if better is None:
        return []
    rows = better.keys
    said = ", ".join(f"{row.key}: {row.value}" for row in rows)
    names = ", ".join(f"{_KEY_WORDS[row.key]} (taken: {row.taken})" for row in rows if row.key in _KEY_WORDS)
    gives = (
        f"{units.show_time(better.step_time_s)}, MFU {better.mfu:.1%}, {units.show_size(better.memory_bytes)} "
        "a GPU, fits"
    )
    text = f"  not stated  {names}. With `{said}`: {gives}"
    return textwrap.wrap(text, 118, subsequent_indent=" " * 14, break_on_hyphens=False)


def _memory_basis(interval: Interval) -> str:
    wider = f"; {'; '.join(interval.unmeasured)}" if interval.unmeasured else ""
    return f"{interval.measurements} measured peaks{wider}"


def _profile(profile: ProfileUse | None) -> list[str]:
    if profile is None:
        return []
    runs = profile.measured_runs
    moved = ", ".join(f"{name} {value:.2f}" for name, value in asdict(profile.multipliers).items())
    sure = f"; one sigma {profile.log_sigma:.1%}"
    return [
        f"  profile     {profile.file}, {runs} measured run{'s' if runs != 1 else ''}{sure} (times {moved})",
        *(f"              {remark}" for remark in profile.remarks),
    ]


def _how(answer: StepPrediction) -> str:
    if answer.executed is None:
        return "closed form"
    closed = answer.analytic_step_time_s
    gap = answer.step_time_s / closed - 1
    return f"executed at {answer.level} level; closed form {units.show_time(closed)}, {gap:+.1%}"


def executed_lines(collectives: Sequence[CollectiveTime | TracedCollective]) -> list[str]:
    """Return what each kind of communication took on the wire, hidden or not, and the link that limits it."""
    if not collectives:
        return []
    wide = max(len(row.name) for row in collectives)
    return ["", "  communication as executed (hidden or not)", *(
        f"    {row.name:{wide}}  {row.calls:>6,} x {units.show_time(row.total_s / max(row.calls, 1)):>9}"
        f"  {units.show_time(row.total_s):>9}  {row.limiting_link or 'its calls alone'}" for row in collectives
    )]  # fmt: skip


def packet_lines(packets: PacketCounts | None) -> list[str]:
    """Return what befell the packets of an executed step."""
    if packets is None:
        return []
    befell = ", ".join(f"{count:,} {word}" for count, word in (
        (packets.marks, "marked"), (packets.resent_packets, "sent again"), (packets.drops, "dropped")))  # fmt: skip
    run = packets.data_packets - packets.skipped_packets
    repeated = f", {run:,} of them run, the rest counted while steady" if packets.skipped_packets else ""
    return [
        f"    {packets.data_packets:,} packets{repeated} ({packets.transport}): {befell}, {packets.pauses:,} pauses; "
        f"queues up to {units.show_size(packets.peak_queue_bytes)}; {packets.cpu_s:.1f} CPU s"
    ]


def _warm_up(warm_up: WarmUp | None) -> list[str]:
    if warm_up is None:
        return []
    return [f"  warm-up     the first {warm_up.steps:,} steps are dense and take {units.show_time(warm_up.step_s)}"]


def split_words(split: UsedSplit) -> str:
    """Return a split in one line: `tp 8 x pp 4 x dp 8, ZeRO 1, interleaved 5, 16 micro-batches`."""
    sizes = {"tp": split.tp, "cp": split.cp, "pp": split.pp, "dp": split.dp}
    axes = " x ".join(f"{axis} {size}" for axis, size in sizes.items() if size != 1) or "one GPU"
    zero = {"none": "no sharding", "fsdp": "FSDP", "hsdp": "HSDP"}.get(split.zero, f"ZeRO {split.zero}")
    words = [axes] + ([f"ep {split.ep}"] if split.ep > 1 else []) + [zero]
    if split.pp > 1:
        words.append(split.schedule + (f" {split.virtual}" if split.virtual > 1 else ""))
    count = split.micro_batches
    return ", ".join([*words, f"{count} micro-batch{'es' if count != 1 else ''}"])


def _memory(held: MemoryUse, chance: float) -> str:
    parts = [
        f"{'lost between blocks' if name == 'fragmentation' else name} {units.show_size(getattr(held, name))}"
        for name in ("parameters", "gradients", "optimizer", "activations", "logits", "buffers", "fragmentation")
        if getattr(held, name)
    ]
    verdict = "fits" if held.fits else "does NOT fit"
    used = f"{units.show_size(held.total)} of {units.show_size(held.available)} a GPU"
    return f"{used}, {verdict}, {chance_words(chance)} likely to fit ({', '.join(parts)})"


def _limit(limit: Limit) -> str:
    if limit.what == "memory":
        return f"{limit.words}; {limit.advice}"
    first = f"{limit.words} {limit.share:.0%}" + (f" ({limit.link})" if limit.link else "")
    then = f"{limit.then_words} {limit.then_share:.1%}" + (f" ({limit.then_link})" if limit.then_link else "")
    return f"{first}, then {then}; what moves it: {limit.advice}"


def _sent(sent: Mapping[str, Mapping[str, float]]) -> list[str]:
    if not sent:
        return []
    lines = ["", "  what one GPU sends in a step        scale-up       network"]
    for kind, tiers in sent.items():
        up, out = (units.show_size(tiers[tier]) for tier in ("scale-up", "network"))
        lines.append(f"    {kind:28} {up:>12}  {out:>12}")
    return lines


def _storage(storage: Storage) -> list[str]:
    lines = []
    if storage.read_given_Bps is not None:
        enough = "enough" if storage.enough else "NOT enough"
        need, given = units.show_bandwidth(storage.read_needed_Bps), units.show_bandwidth(storage.read_given_Bps)
        lines.append(f"  storage     reads {need}, the network gives {given}: {enough}")
    if storage.checkpoint_s is not None:
        size, time = units.show_size(storage.checkpoint_bytes), units.show_time(storage.checkpoint_s)
        lines.append(f"  checkpoint  {size} in {time}; a step waits {units.show_time(storage.stall_s_per_step)}")
    return ["", *lines] if lines else []


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


def decode_lines(answer: DecodeResult) -> list[str]:
    """Return a decode step for people."""
    total = answer.token_time_s
    where = "one host" if answer.hosts == 1 else f"{answer.hosts} hosts"
    lines = [
        f"{answer.job}: decode of {answer.model}, tp {answer.tp} over {where} ({answer.gpu}), "
        f"{answer.sequences} sequence{'s' if answer.sequences != 1 else ''}, {answer.context:,} tokens of context",
        "",
        f"  token       {units.show_time(total)}: {answer.tokens_per_s_per_sequence:,.1f} tokens/s a sequence, "
        f"{answer.tokens_per_s:,.1f} in all",
        f"  memory      {units.show_size(answer.memory_bytes)} a GPU, {'fits' if answer.fits else 'does NOT fit'}",
        f"  all-reduce  {units.show_size(answer.all_reduce_bytes)} in {units.show_time(answer.all_reduce_s)}, "
        "two a layer",
        "",
    ]
    for name, seconds in answer.parts_s.items():
        lines.append(f"    {name.replace('_', '-'):28} {units.show_time(seconds):>10}  {seconds / total:6.1%}")
    return [*lines, "", f"  ignores: {', '.join(answer.ignores)}"]


def text(answer: StepPrediction | DecodePrediction, width: int) -> Iterable[str]:
    """Return one step."""
    match answer:
        case StepPrediction():
            return step_lines(answer)
        case DecodePrediction():
            return decode_lines(answer.result)
