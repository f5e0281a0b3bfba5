"""PyTorch profiler traces (Kineto's Chrome JSON): torch 1.8 to now, NVIDIA, AMD and MTIA, gloo on the CPU.

    recording = read_kineto("rank0.pt.trace.json.gz")

Only what an account needs is kept of the events, in columns: operators, launches, blocking calls, Python functions that
last, kernels and copies, and the parameters of collectives.
"""

from __future__ import annotations

import bisect
import gc
import math
import re
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from syncline.describe.progress import Meter
from syncline.errors import DescriptionError
from syncline.timeline.collective import operation_of
from syncline.timeline.columns import Ints
from syncline.timeline.recording.events import Event, EventFile
from syncline.timeline.recording.kernel_kind import EXCHANGE, algorithm_of, exchanges_experts, kind_of
from syncline.timeline.recording.recording import (
    Calling,
    CollectiveCall,
    DeviceActivities,
    Doing,
    HostCalls,
    Recording,
    StepMark,
)

_DEVICE = {
    "kernel": Doing.COMPUTE, "Kernel": Doing.COMPUTE, "gpu_memcpy": Doing.COPY, "Memcpy": Doing.COPY,
    "gpu_memset": Doing.COPY, "Memset": Doing.COPY, "mtia_ccp_events": Doing.COMPUTE,
}  # fmt: skip
_RUNTIME = {
    "cuda_runtime",
    "cuda_driver",
    "Runtime",
    "mtia_runtime",
    "xpu_runtime",
    "xpu_driver",
    "privateuse1_runtime",
}
_OPERATOR = {"cpu_op", "Operator"}
_ANNOTATION = {"user_annotation", "cpu_op", "Operator"}
_BLOCKS = re.compile(r"(?:cuda|hip|cu)\w*Synchronize|cudaMemcpy$|hipMemcpy(?:WithStream)?$|cudaFree$|hipFree$")
_LAUNCHES = re.compile(r"Launch(?:Kernel|Cooperative)|KernelLaunch|GraphLaunch")
_INPUT = re.compile(r"^enumerate\(DataLoader\)#.*__next__")
_STEP = "ProfilerStep#"
_TALK = ("nccl:", "c10d::")
_GLOO = "gloo:"
RECORDED = "record_param_comms"
_AROUND = ("autograd::", "torch::autograd::")
"""Of autograd's nodes, in which operators run and hooks wait: they and nodes without a namespace are no work."""
LEAST_PYTHON_US = 50.0
"""Python functions that return sooner are not kept: they cannot hold a call that costs the step anything."""
WIDTHS = {
    "double": 8, "float64": 8, "long": 8, "int64": 8, "float": 4, "float32": 4, "fp32": 4, "int": 4, "int32": 4,
    "half": 2, "float16": 2, "bfloat16": 2, "c10::bfloat16": 2, "c10::half": 2, "short": 2, "byte": 1, "char": 1,
    "uint8": 1, "int8": 1, "bool": 1, "unsigned char": 1, "signed char": 1, "long int": 8,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "c10::float8_e4m3fn": 1, "c10::float8_e5m2": 1,
}  # fmt: skip
GROWING = ("all-gather",)
"""Collectives whose result is larger than what goes in."""


def read_kineto(path: str | Path, meter: Meter | None = None) -> Recording:
    """Return what a profiler trace recorded of its rank."""
    file = EventFile(Path(path), meter)
    draft = _Draft()
    with _no_collector():
        for block in file.blocks():
            draft.add(block)
    return draft.build(str(path), file.facts)


@contextmanager
def _no_collector() -> Iterator[None]:
    """Stop Python's collector of cycles, which goes through millions of fresh events for nothing."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class _Columns:
    """Columns under construction."""

    def __init__(self, whole: tuple[str, ...], real: tuple[str, ...] = ("start", "end")) -> None:
        self.whole = {name: array("q") for name in whole}
        self.real = {name: array("d") for name in real}

    def __len__(self) -> int:
        return len(self.real["start"])

    def column(self, name: str) -> Ints:
        return np.array(self.whole[name], np.int64)


class _Draft:
    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.threads: dict[object, int] = {}
        self.streams: dict[object, int] = {}
        self.device = _Columns(("name", "doing", "stream", "correlation", "collective", "place"))
        self.host = _Columns(("name", "calling", "thread", "correlation"))
        self.collectives: dict[CollectiveCall, int] = {}
        self.records: dict[int, Event] = {}
        self.unnamed: list[tuple[int, int, str]] = []  # device row, external id, kernel: their record may come later
        self.steps: dict[str, tuple[float, float]] = {}
        self.gloo: list[tuple[float, float, object, str, Event]] = []
        self.stacks = False

    def name(self, text: object) -> int:
        return self.names.setdefault(str(text)[:160], len(self.names))

    def add(self, events: list[Event]) -> None:
        """Keep what matters of some events."""
        for event in events:
            if event.get("ph") != "X":
                continue
            cat, start, length = event.get("cat"), event.get("ts"), event.get("dur", 0.0)
            try:
                begin = float(start)  # type: ignore[arg-type]
                end = begin + max(float(length or 0.0), 0.0)
            except (TypeError, ValueError):
                continue
            if not math.isfinite(end):
                continue
            if cat in _DEVICE:
                self._on_device(event, _DEVICE[cat], begin, end)
            elif cat in _RUNTIME:
                self._runtime(event, begin, end)
            elif cat == "python_function":
                self.stacks = True
                if end - begin >= LEAST_PYTHON_US:
                    self._call(event, Calling.PYTHON, begin, end)
            elif cat in _ANNOTATION:
                self._annotation(event, begin, end)

    def _call(self, event: Event, calling: Calling, begin: float, end: float, correlation: int = -1) -> None:
        rows = self.host
        rows.whole["name"].append(self.name(event.get("name", "")))
        rows.whole["calling"].append(calling)
        rows.whole["thread"].append(self.threads.setdefault((event.get("pid"), event.get("tid")), len(self.threads)))
        rows.whole["correlation"].append(correlation)
        rows.real["start"].append(begin)
        rows.real["end"].append(end)

    def _runtime(self, event: Event, begin: float, end: float) -> None:
        blocks = _BLOCKS.search(str(event.get("name", ""))) is not None
        self._call(event, Calling.BLOCK if blocks else Calling.LAUNCH, begin, end, _number(event, "correlation"))

    def _annotation(self, event: Event, begin: float, end: float) -> None:
        name = str(event.get("name", ""))
        if name == RECORDED:
            self.records[_number(event, "External id")] = _args(event)
        if name.startswith(_STEP):
            self.steps[name] = (begin, end)
        elif name.startswith(_GLOO):
            self.gloo.append((begin, end, event.get("tid"), name, _args(event)))
        elif _INPUT.match(name):
            self._call(event, Calling.INPUT, begin, end)
        elif event.get("cat") in _OPERATOR or name.startswith(_TALK):
            self._call(event, Calling.OPERATOR, begin, end)

    def _on_device(self, event: Event, doing: Doing, begin: float, end: float) -> None:
        args, name = _args(event), str(event.get("name", ""))
        collective = -1
        if doing is Doing.COMPUTE and ("Collective name" in args or kind_of(name) == EXCHANGE):
            doing = Doing.COLLECTIVE
            if "Collective name" in args:
                collective = self.collective(args, name)
            else:
                self.unnamed.append((len(self.device), _number(event, "External id"), name))
        rows = self.device
        rows.whole["name"].append(self.name(name))
        rows.whole["doing"].append(doing)
        rows.whole["stream"].append(self.streams.setdefault(args.get("stream", event.get("tid")), len(self.streams)))
        rows.whole["correlation"].append(_number(event, "correlation"))
        rows.whole["collective"].append(collective)
        place = args.get("device", event.get("pid"))
        rows.whole["place"].append(place if isinstance(place, int) else 0)
        rows.real["start"].append(begin)
        rows.real["end"].append(end)

    def collective(self, record: Event, kernel: str) -> int:
        """Return the number of a collective that a record describes, or a kernel's name alone."""
        found = _described(record, kernel)
        return self.collectives.setdefault(found, len(self.collectives))

    def build(self, where: str, facts: Event) -> Recording:
        """Return the recording."""
        callers = self._callers()
        for row, external, kernel in self.unnamed:
            record = self.records.get(external, {})
            if not record:
                called = callers.get(self.device.whole["correlation"][row], "")
                record = {"Collective name": called} if called else {}
            self.device.whole["collective"][row] = self.collective(record, kernel)
        info = facts.get("distributedInfo")
        told = info if isinstance(info, dict) else {}
        on_cpu = not len(self.device)
        if on_cpu:
            self._from_gloo(max(_whole(told.get("world_size"), 1), 1))
            self._refuse_what_was_not_recorded(where)
        begin, end = (np.array(self.device.real[name]) / 1e6 for name in ("start", "end"))
        opens, closes = (np.array(self.host.real[name]) / 1e6 for name in ("start", "end"))
        marks = sorted(self.steps.items(), key=lambda item: item[1])
        moments = [*(mark[1][0] / 1e6 for mark in marks[:1])]
        moments += [float(column.min()) for column in (begin, opens) if len(column)]
        first = min(moments)
        chosen = _one_device(self.device.column("place"), begin, end)
        order = chosen[np.argsort(begin[chosen], kind="stable")]
        calls = np.argsort(opens, kind="stable")
        host = HostCalls(
            self.host.column("name")[calls], self.host.column("calling")[calls], (opens - first)[calls],
            (closes - first)[calls], self.host.column("thread")[calls],
        )  # fmt: skip
        device = DeviceActivities(
            self.device.column("name")[order], self.device.column("doing")[order], (begin - first)[order],
            (end - first)[order], self.device.column("stream")[order],
            _launched(self.device.column("correlation")[order], self.host.column("correlation")[calls], host.calling),
            self.device.column("collective")[order],
        )  # fmt: skip
        steps = tuple(StepMark(name, a / 1e6 - first, b / 1e6 - first) for name, (a, b) in marks)
        recording = Recording(
            rank=_whole(told.get("rank"), -1), world=_whole(told.get("world_size"), 0), where=where,
            tool="PyTorch profiler", device_name="CPU" if on_cpu else _device_name(facts), names=tuple(self.names),
            device=device, host=host, collectives=tuple(self.collectives), steps=steps,
        )  # fmt: skip
        return _with_lacks(recording, self.stacks, on_cpu)

    def _refuse_what_was_not_recorded(self, where: str) -> None:
        """Refuse a trace that shows nothing at work: operators that launch kernels are no work of the CPU."""
        names, rows = list(self.names), self.host.whole
        asked = [names[name] for name, calling in zip(rows["name"], rows["calling"], strict=True)
                 if calling == Calling.LAUNCH and _LAUNCHES.search(names[name])]  # fmt: skip
        if asked:
            raise DescriptionError(
                f"the host launched {len(asked):,} kernels ({asked[0]}) and the trace has none of them.", where=where,
                detail="The device was not recorded: another profiler may hold it, or only root may read it.",
                hint="Profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]; CUPTI's warnings say why.",
            )  # fmt: skip
        if not len(self.device) and Calling.OPERATOR not in rows["calling"]:
            raise DescriptionError(
                "the trace has no kernels and no operators.", where=where,
                hint="Profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA].",
            )  # fmt: skip

    def _callers(self) -> dict[int, str]:
        """Return by launch the call of torch.distributed that it is in, for collectives that nothing else describes."""
        wanted = {self.device.whole["correlation"][row] for row, external, _ in self.unnamed
                  if external not in self.records}  # fmt: skip
        if not wanted:
            return {}
        rows, names = self.host, list(self.names)
        talk = {number for number, name in enumerate(names) if name.startswith(_TALK) and operation_of(name)}
        calls = sorted((rows.real["start"][i], rows.real["end"][i], names[rows.whole["name"][i]])
                       for i in range(len(rows)) if rows.whole["name"][i] in talk)  # fmt: skip
        starts = [call[0] for call in calls]
        found = {}
        for i in range(len(rows)):
            number = rows.whole["correlation"][i]
            if (
                number in wanted
                and (at := bisect.bisect_right(starts, rows.real["start"][i]))
                and (calls[at - 1][1] >= rows.real["start"][i])
            ):
                found[number] = calls[at - 1][2]
        return found

    def _from_gloo(self, world: int) -> None:
        """Take operators for what a CPU computes, and gloo's threads for what it exchanges."""
        threads = {self.threads[key] for key in self.threads if key[1] in {row[2] for row in self.gloo}}  # type: ignore[index]
        until: dict[int, float] = {}
        rows = self.host
        names = list(self.names)
        for row in np.argsort(np.array(rows.real["start"]), kind="stable").tolist():
            thread, begin, end = rows.whole["thread"][row], rows.real["start"][row], rows.real["end"][row]
            name = names[rows.whole["name"][row]]
            if rows.whole["calling"][row] != Calling.OPERATOR or thread in threads or begin < until.get(thread, -1.0):
                continue
            if ("::" not in name and name != RECORDED) or name.startswith(_AROUND):
                continue
            until[thread] = end
            if not name.startswith(("c10d::", RECORDED)):
                self._row(rows.whole["name"][row], Doing.COMPUTE, thread, begin, end, -1)
        for begin, end, _, name, args in self.gloo:
            operation = operation_of(name)
            whole = world if operation in GROWING else 1
            call = CollectiveCall(operation, "", 0, _input_bytes(args) * whole, receives="recv" in name.lower())
            number = self.collectives.setdefault(call, len(self.collectives))
            self._row(self.name(name), Doing.COLLECTIVE, 1000 + len(self.threads), begin, end, number)

    def _row(self, name: int, doing: Doing, stream: int, begin: float, end: float, collective: int) -> None:
        rows = self.device
        values = {
            "name": name,
            "doing": doing,
            "stream": stream,
            "correlation": -1,
            "collective": collective,
            "place": 0,
        }
        for key, value in values.items():
            rows.whole[key].append(value)
        rows.real["start"].append(begin)
        rows.real["end"].append(end)


def _args(event: Event) -> Event:
    args = event.get("args")
    return args if isinstance(args, dict) else {}


def _number(event: Event, key: str) -> int:
    return _whole(_args(event).get(key), -1)


def _whole(value: object, otherwise: int) -> int:
    try:
        return int(value) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else otherwise
    except ValueError:
        return otherwise


def _described(record: Event, kernel: str) -> CollectiveCall:
    """Return a collective from the host's record of it, or as far as its kernel's name tells."""
    named = str(record.get("Collective name") or "")
    operation = (
        operation_of(named) or operation_of(kernel) or ("all-to-all" if exchanges_experts(kernel) else "exchange")
    )
    if not named and operation == "send-receive":
        operation = "exchange"  # NCCL does all-to-alls with the kernel of its sends and receives
    width = WIDTHS.get(str(record.get("dtype", "")).lower(), 2)
    # The whole buffer: what comes out of a gather, what goes into a scatter.
    counts = [record.get(f"{way} msg {unit}", 0) for way in ("In", "Out") for unit in ("nelems", "size")]
    size = max(float(count) * width for count in (_whole(count, 0) for count in counts))
    members = _members(record.get("Process Group Ranks"))
    ranks = 2 if operation == "send-receive" else _whole(record.get("Group size"), 0) or len(members)
    group = str(record.get("Process Group Description") or record.get("Process Group Name") or "")
    name = str(record.get("Process Group Name") or "")
    shown = group if group in ("", name) or group == "default_pg" else f"{group}"
    receives = "recv" in named.lower()
    return CollectiveCall(operation, shown[:60], ranks, size, algorithm_of(kernel), members, receives)


def _members(text: object) -> tuple[int, ...]:
    """Return the ranks of a group, which are written as a list or as its text; none where it was cut short."""
    if not text or "..." in str(text):
        return ()
    return tuple(int(number) for number in re.findall(r"[0-9]+", str(text)))


def _input_bytes(args: Event) -> float:
    """Return the bytes of a call's inputs, which a trace has with `record_shapes=True`; 0 without."""
    dims, types = args.get("Input Dims"), args.get("Input type")
    if not isinstance(dims, list) or not isinstance(types, list):
        return 0.0
    return float(sum(
        math.prod(shape) * WIDTHS.get(str(kind).lower(), 4)
        for shape, kind in zip(dims, types, strict=False)
        if isinstance(shape, list) and shape and all(isinstance(n, int) for n in shape)
    ))  # fmt: skip


def _launched(correlation: Ints, calls: Ints, calling: Ints) -> Ints:
    """Return for each device activity the host's call that launched it, or -1."""
    known = np.flatnonzero(calls >= 0)
    if not len(known):
        return np.full(len(correlation), -1, np.int64)
    order = known[np.argsort(calls[known], kind="stable")]
    at = np.minimum(np.searchsorted(calls[order], correlation), len(order) - 1)
    hit = (calls[order][at] == correlation) & (correlation >= 0)
    return np.where(hit, order[at], -1)


def _one_device(place: Ints, begin: np.ndarray[Any, Any], end: np.ndarray[Any, Any]) -> Ints:
    """Return the rows of the device that is busy longest: a process may drive several."""
    if not len(place):
        return np.empty(0, np.int64)
    values, index = np.unique(place, return_inverse=True)
    busiest = int(np.bincount(index, weights=end - begin, minlength=len(values)).argmax())
    return np.flatnonzero(index == busiest)


def _device_name(facts: Event) -> str:
    found = facts.get("deviceProperties", facts.get("computeProperties"))  # torch 1.8 wrote the latter
    first = found[0] if isinstance(found, list) and found else None
    return str(first.get("name", "")) if isinstance(first, dict) else ""


def _with_lacks(recording: Recording, stacks: bool, on_cpu: bool) -> Recording:
    """Return a recording that says what it does not have."""
    from dataclasses import replace

    lacks = []
    if not recording.steps:
        lacks.append("steps: the trace marks none and counts as one (call prof.step() after each)")
    if not len(recording.host):
        lacks.append("the host: idle time has no cause (add ProfilerActivity.CPU)")
    if not stacks and not on_cpu:
        lacks.append("Python lines: blocking calls have none (with_stack=True)")
    if recording.collectives and not any(call.size_bytes for call in recording.collectives):
        flag = "record_shapes=True" if on_cpu else "torch 2.3 or newer records it with record_shapes=True"
        lacks.append(f"sizes and groups of collectives ({flag})")
    return replace(recording, lacks=tuple(lacks))
