"""One step's price, and a job's traffic, as text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from functools import singledispatch
from typing import Any

from syncline.describe import units
from syncline.questions.step import DecodePrediction, StepPrediction, TracePrediction
from syncline.report.text.interval import between, interval_lines

PART_WORDS = {
    "compute": "compute", "tp": "tensor-parallel exchange", "cp": "context-parallel exchange",
    "ep": "expert all-to-all", "host": "waiting for the host", "fsdp": "FSDP gathers and scatters",
    "dp": "gradient exchange", "p2p": "between stages", "bubble": "pipeline bubble", "optimizer": "optimizer",
    "fixed": "once a step, stragglers", "codec": "encoding", "storage": "waiting for storage",
}  # fmt: skip


def step_lines(data: Mapping[str, Any]) -> list[str]:
    """Return the price of a step for people: how long, where the time goes, what is sent, what it assumed."""
    sure = interval_lines(data["interval"], units.show_time)
    lines = [
        f"{data['job']}: {data['model']} on {data['gpus']:,} x {data['gpu']}, {split_words(data['parallel'])}",
        "",
        *(part for text in data.get("assumed_of_cluster", ()) for part in _assumed(text)),
        f"  step        {units.show_time(data['step_time_s'])}  ({_how(data)})",
        *(f"  differs     {cause}" for cause in data.get("executed", {}).get("differs", ())),
        f"  interval    {sure[0]}",
        f"              {sure[1]}",
        *_profile(data.get("profile")),
        *_warm_up(data["warm_up"]),
        f"  throughput  {data['tokens_per_s']:,.0f} {data['token']}s/s, {data['tokens_per_s_per_gpu']:,.1f} a GPU, "
        f"MFU {data['mfu']:.1%} of {data['mfu_peak_flops'] / 1e12:,.0f} TFLOP/s",
        f"  memory      {_memory(data['memory_bytes'])}",
        f"              {between(data['memory_interval'], units.show_size)}; {_memory_basis(data['memory_interval'])}",
        *_unstated(data.get("unstated")),
        f"  limit       {_limit(data['limit'])}",
        f"  exposed     {units.show_time(data['exposed_comm_s'])} of communication hides behind nothing",
        "",
        "  where the time goes (exposed)",
    ]
    total = data["step_time_s"]
    for name, seconds in data["parts_s"].items():
        if seconds / total > 5e-4:
            lines.append(f"    {PART_WORDS[name]:28} {units.show_time(seconds):>10}  {seconds / total:6.1%}")
    lines += _executed(data.get("executed", {}).get("collectives", ()))
    lines += _packets(data.get("executed", {}).get("packets"))
    lines += _sent(data["comm_bytes"])
    lines += _storage(data["storage"])
    lines += [f"  warning: {text}" for text in data["warnings"]]
    shown = ", ".join(f"{name} {_word(value)}" for name, value in data["assumed"].items())
    lines += ["", f"  assumed: {shown}", f"  ignores: {', '.join(data['ignores'])}"]
    return lines


def _assumed(text: str) -> list[str]:
    """Return what the cluster's file leaves open, said before the answer that rests on it."""
    return textwrap.wrap(f"  assumed     {text}", 118, subsequent_indent=" " * 14, break_on_hyphens=False)


#: What a key of the job file is called by people.
_KEY_WORDS = {
    "virtual": "virtual stages", "fused_act": "an activation kernel that keeps no product, such as xformers'",
    "allocator": "allocator",
}  # fmt: skip


def _unstated(better: Mapping[str, Any] | None) -> list[str]:
    """Return what the job does not say and what saying it would give."""
    if better is None:
        return []
    rows = better["keys"]
    said = ", ".join(f"{row['key']}: {row['value']}" for row in rows)
    names = ", ".join(f"{_KEY_WORDS[row['key']]} (taken: {row['taken']})" for row in rows if row["key"] in _KEY_WORDS)
    gives = (
        f"{units.show_time(better['step_time_s'])}, MFU {better['mfu']:.1%}, {units.show_size(better['memory_bytes'])} "
        "a GPU, fits"
    )
    text = f"  not stated  {names}. With `{said}`: {gives}"
    return textwrap.wrap(text, 118, subsequent_indent=" " * 14, break_on_hyphens=False)


def _memory_basis(interval: Mapping[str, Any]) -> str:
    wider = f"; {'; '.join(interval['unmeasured'])}" if interval["unmeasured"] else ""
    return f"{interval['measurements']} measured peaks{wider}"


def _profile(profile: Mapping[str, Any] | None) -> list[str]:
    if profile is None:
        return []
    runs = profile["measured_runs"]
    moved = ", ".join(f"{name} {value:.2f}" for name, value in profile["multipliers"].items())
    sure = f"; one sigma {profile['log_sigma']:.1%}" if profile["log_sigma"] is not None else ""
    return [
        f"  profile     {profile['file']}, {runs} measured run{'s' if runs != 1 else ''}{sure} (times {moved})",
        *(f"              {remark}" for remark in profile["remarks"]),
    ]


def _how(data: Mapping[str, Any]) -> str:
    if "executed" not in data:
        return "closed form"
    closed = data["analytic_step_time_s"]
    gap = data["step_time_s"] / closed - 1
    return f"executed at {data['level']} level; closed form {units.show_time(closed)}, {gap:+.1%}"


def _executed(collectives: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what each kind of communication took on the wire, hidden or not, and the link that limits it."""
    if not collectives:
        return []
    wide = max(len(row["name"]) for row in collectives)
    return ["", "  communication as executed (hidden or not)", *(
        f"    {row['name']:{wide}}  {row['calls']:>6,} x {units.show_time(row['total_s'] / max(row['calls'], 1)):>9}"
        f"  {units.show_time(row['total_s']):>9}  {row['limiting_link'] or 'its calls alone'}" for row in collectives
    )]  # fmt: skip


def _packets(packets: Mapping[str, Any] | None) -> list[str]:
    """Return what befell the packets of an executed step."""
    if packets is None:
        return []
    befell = ", ".join(f"{packets[name]:,} {word}" for name, word in (
        ("marks", "marked"), ("resent_packets", "sent again"), ("drops", "dropped")))  # fmt: skip
    return [
        f"    {packets['data_packets']:,} packets ({packets['transport']}): {befell}, {packets['pauses']:,} pauses; "
        f"queues up to {units.show_size(packets['peak_queue_bytes'])}; {packets['cpu_s']:.1f} CPU s"
    ]


def _warm_up(warm_up: Mapping[str, float] | None) -> list[str]:
    if warm_up is None:
        return []
    return [
        f"  warm-up     the first {warm_up['steps']:,} steps are dense and take {units.show_time(warm_up['step_s'])}"
    ]


def split_words(split: Mapping[str, Any]) -> str:
    """Return a split in one line: `tp 8 x pp 4 x dp 8, ZeRO 1, interleaved 5, 16 micro-batches`."""
    axes = " x ".join(f"{axis} {split[axis]}" for axis in ("tp", "cp", "pp", "dp") if split[axis] != 1) or "one GPU"
    zero = {"none": "no sharding", "fsdp": "FSDP", "hsdp": "HSDP"}.get(split["zero"], f"ZeRO {split['zero']}")
    words = [axes] + ([f"ep {split['ep']}"] if split["ep"] > 1 else []) + [zero]
    if split["pp"] > 1:
        words.append(split["schedule"] + (f" {split['virtual']}" if split["virtual"] > 1 else ""))
    count = split["micro_batches"]
    return ", ".join([*words, f"{count} micro-batch{'es' if count != 1 else ''}"])


def _memory(held: Mapping[str, Any]) -> str:
    parts = [
        f"{'lost between blocks' if name == 'fragmentation' else name} {units.show_size(held[name])}"
        for name in ("parameters", "gradients", "optimizer", "activations", "logits", "buffers", "fragmentation")
        if held.get(name)
    ]
    verdict = "fits" if held["fits"] else "does NOT fit"
    used = f"{units.show_size(held['total'])} of {units.show_size(held['available'])} a GPU"
    return f"{used}, {verdict} ({', '.join(parts)})"


def _limit(limit: Mapping[str, Any]) -> str:
    if limit["what"] == "memory":
        return f"{limit['words']}; {limit['advice']}"
    first = f"{limit['words']} {limit['share']:.0%}" + (f" ({limit['link']})" if limit["link"] else "")
    then = f"{limit['then_words']} {limit['then_share']:.1%}" + (
        f" ({limit['then_link']})" if limit["then_link"] else ""
    )
    return f"{first}, then {then}; what moves it: {limit['advice']}"


def _sent(sent: Mapping[str, Mapping[str, float]]) -> list[str]:
    if not sent:
        return []
    lines = ["", "  what one GPU sends in a step        scale-up       network"]
    for kind, tiers in sent.items():
        up, out = (units.show_size(tiers[tier]) for tier in ("scale-up", "network"))
        lines.append(f"    {kind:28} {up:>12}  {out:>12}")
    return lines


def _storage(storage: Mapping[str, Any]) -> list[str]:
    lines = []
    if storage["read_given_Bps"] is not None:
        enough = "enough" if storage["enough"] else "NOT enough"
        need, given = units.show_bandwidth(storage["read_needed_Bps"]), units.show_bandwidth(storage["read_given_Bps"])
        lines.append(f"  storage     reads {need}, the network gives {given}: {enough}")
    if storage["checkpoint_s"] is not None:
        size, time = units.show_size(storage["checkpoint_bytes"]), units.show_time(storage["checkpoint_s"])
        lines.append(f"  checkpoint  {size} in {time}; a step waits {units.show_time(storage['stall_s_per_step'])}")
    return ["", *lines] if lines else []


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


def decode_lines(data: Mapping[str, Any]) -> list[str]:
    """Return a decode step for people."""
    total = data["token_time_s"]
    where = "one host" if data["hosts"] == 1 else f"{data['hosts']} hosts"
    lines = [
        f"{data['job']}: decode of {data['model']}, tp {data['tp']} over {where} ({data['gpu']}), "
        f"{data['sequences']} sequence{'s' if data['sequences'] != 1 else ''}, {data['context']:,} tokens of context",
        "",
        f"  token       {units.show_time(total)}: {data['tokens_per_s_per_sequence']:,.1f} tokens/s a sequence, "
        f"{data['tokens_per_s']:,.1f} in all",
        f"  memory      {units.show_size(data['memory_bytes'])} a GPU, {'fits' if data['fits'] else 'does NOT fit'}",
        f"  all-reduce  {units.show_size(data['all_reduce_bytes'])} in {units.show_time(data['all_reduce_s'])}, "
        "two a layer",
        "",
    ]
    for name, seconds in data["parts_s"].items():
        lines.append(f"    {name.replace('_', '-'):28} {units.show_time(seconds):>10}  {seconds / total:6.1%}")
    return [*lines, "", f"  ignores: {', '.join(data['ignores'])}"]


def replay_lines(data: Mapping[str, Any]) -> list[str]:
    """Return a traced step on another cluster for people."""
    before, after = data["recorded_s"], data["step_time_s"]
    exposed = units.show_time(data["recorded_exposed_comm_s"])
    recorded = f"{units.show_time(before)}, {exposed} of it exposed communication" if before else "no times"
    wide = max(11, len(data["cluster"]))
    return [
        f"{data['trace']}: {data['operations']:,} operations of {data['ranks']} rank(s), "
        f"{units.show_size(data['comm_bytes'])} communicated",
        "",
        f"  {'recorded':{wide}} {recorded}",
        f"  {data['cluster']:{wide}} {units.show_time(after)}, {units.show_time(data['exposed_comm_s'])} exposed"
        f"{f' ({after / before - 1:+.1%})' if before else ''}",
        "",
        *_executed(data["collectives"])[1:],
        *_packets(data["packets"]),
        *([""] if data["collectives"] else []),
        *_kept_lines(data["kept_as_recorded"]),
        f"  ignores: {', '.join(data['ignores'])}",
    ]


def _kept_lines(kept: int) -> list[str]:
    if not kept:
        return []
    return [f"  {kept:,} transfers whose size the trace does not tell keep the time that was recorded", ""]


@singledispatch
def text(answer: Any, width: int) -> Iterable[str]:
    """Return one step."""
    raise TypeError(type(answer))


@text.register
def _step_prediction(answer: StepPrediction, width: int) -> Iterable[str]:
    return step_lines(answer.to_json())


@text.register
def _decode_prediction(answer: DecodePrediction, width: int) -> Iterable[str]:
    return decode_lines(answer.to_json())


@text.register
def _trace_prediction(answer: TracePrediction, width: int) -> Iterable[str]:
    return replay_lines(answer.to_json())
