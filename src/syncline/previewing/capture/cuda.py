"""A `torch.cuda` that answers for the described GPU, with streams and events that are recorded."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch

from syncline.previewing.capture.log import KERNEL, SYNC, Log

_state: dict[str, Any] = {}
_TRUE = (
    "is_available", "is_initialized", "is_bf16_supported", "can_device_access_peer", "_is_compiled",
    "_check_bf16_tensor_supported", "is_tf32_supported",
)  # fmt: skip
_NOTHING = (
    "init", "_lazy_init", "empty_cache", "ipc_collect", "reset_peak_memory_stats", "reset_max_memory_allocated",
    "manual_seed", "manual_seed_all", "seed", "seed_all", "set_per_process_memory_fraction", "set_rng_state",
    "set_rng_state_all", "reset_accumulated_memory_stats", "_sleep",
)  # fmt: skip
"""What scripts ask of `torch.cuda` that has one answer, or none."""


_OLD_NAMES = {
    "Float": torch.float32, "Double": torch.float64, "Half": torch.float16, "BFloat16": torch.bfloat16,
    "Long": torch.int64, "Int": torch.int32, "Short": torch.int16, "Byte": torch.uint8, "Bool": torch.bool,
}  # fmt: skip


class Stream:
    """A stream: the order of what is launched on it, and what it waits for."""

    def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None:
        log: Log = _state["log"]
        self.stream_id = len(log.streams)
        log.streams[f"stream {self.stream_id}"] = self.stream_id
        self.device, self.priority = torch.device("cuda", torch.cuda.current_device()), priority
        self.device_type, self.device_index, self.cuda_stream = 1, self.device.index, self.stream_id

    @classmethod
    def default(cls) -> Stream:
        found = cls.__new__(cls)
        found.stream_id = found.cuda_stream = found.priority = 0
        found.device, found.device_index, found.device_type = torch.device("cuda", 0), 0, 1
        return found

    def wait_stream(self, stream: Stream) -> None:
        log: Log = _state["log"]
        for op in log.reached(stream.stream_id):
            log.wait(self.stream_id, op)

    def wait_event(self, event: StreamEvent) -> None:
        event.wait(self)

    def record_event(self, event: StreamEvent | None = None) -> StreamEvent:
        event = event or StreamEvent()
        event.record(self)
        return event

    def synchronize(self) -> None:
        host_waits(self.stream_id)

    def query(self) -> bool:
        return True

    def is_capturing(self) -> bool:
        return False

    def __enter__(self) -> Stream:
        _state["before"].append(_state["current"])
        _state["current"] = self
        return self

    def __exit__(self, *_: object) -> None:
        _state["current"] = _state["before"].pop()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.stream_id == self.stream_id

    def __hash__(self) -> int:
        return self.stream_id


class StreamEvent:
    """A point of a stream that others wait for."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.ops: list[int] = []
        self.stream = 0

    def record(self, stream: Stream | None = None) -> None:
        log: Log = _state["log"]
        self.stream = (stream or _state["current"]).stream_id
        self.ops = log.reached(self.stream)

    def wait(self, stream: Stream | None = None) -> None:
        for op in self.ops:
            _state["log"].wait((stream or _state["current"]).stream_id, op)

    def synchronize(self) -> None:
        host_waits(self.stream, max(self.ops, default=None))

    def query(self) -> bool:
        return True

    def elapsed_time(self, other: StreamEvent) -> float:
        _state["log"].stand_in("Event.elapsed_time", "1.0 ms")
        return 1.0


class RecordedGraph:
    """A CUDA graph: what is captured runs at every replay, launched at once."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.ops: list[list[Any]] = []

    def capture_begin(self, *_: Any, **__: Any) -> None:
        log: Log = _state["log"]
        self.first, self.last, self.pending = len(log.ops), dict(log.last), dict(log.pending)

    def capture_end(self) -> None:
        log: Log = _state["log"]
        self.ops = log.ops[self.first :]
        del log.ops[self.first :]
        log.last, log.pending = self.last, self.pending

    def replay(self) -> None:
        log: Log = _state["log"]
        begin, stream = len(log.ops), current()
        for number, (kind, _, signature, module, line, phase, _, extra) in enumerate(self.ops):
            waits = sorted(log.pending.pop(stream, ())) if not number else []
            whole = [*extra[:3], int(not number), 0] if kind == KERNEL else extra
            log.ops.append([kind, stream, signature, module, line, phase, waits, whole])
            log.last[stream] = begin + number

    def pool(self) -> tuple[int, int]:
        return 0, 0

    def reset(self) -> None: ...


class _Kinds(type):
    """Types of tensors by their old names: `torch.cuda.FloatTensor(2, 3)`."""

    dtype: torch.dtype

    def __call__(cls, *given: Any) -> Any:
        if len(given) == 1 and isinstance(given[0], (list, tuple)) and not isinstance(given[0], torch.Size):
            return torch.tensor(given[0], dtype=cls.dtype, device="cuda")
        return torch.empty(*given or (0,), dtype=cls.dtype, device="cuda")

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, torch.Tensor) and value.is_cuda and value.dtype is cls.dtype


class Generator(torch.Generator):
    """A generator, on whichever device it was asked for: its numbers are not used."""

    def __new__(cls, device: Any = "cpu") -> Generator:
        found = super().__new__(cls)
        found.lies_on = torch.device(device)  # type: ignore[attr-defined]
        return found

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self.lies_on  # type: ignore[attr-defined, no-any-return]


def current() -> int:
    """Return the number of the stream in use."""
    return _state["current"].stream_id  # type: ignore[no-any-return]


def host_waits(stream: int, op: int | None = None) -> None:
    """Record that the host waits for a stream before it goes on."""
    log: Log = _state["log"]
    target = log.last.get(stream) if op is None else op
    if target is not None:
        log.add(SYNC, stream, -1, "", log.line(), "", target)


@contextmanager
def _on(stream: Stream | None) -> Any:
    if stream is None:
        yield
        return
    with stream:
        yield


def absent(log: Log) -> None:
    """Let a script on a CPU have its one stream: what it calls has been done when it returns."""
    _state.update(log=log, before=[], device=0)
    _state["current"] = Stream.default()


def prepare(log: Log, gpu: Mapping[str, Any], local_rank: int, local_size: int, memory: Any) -> None:
    """Replace what scripts ask of `torch.cuda`."""
    _state.update(log=log, before=[], device=local_rank)
    _state["current"] = Stream.default()
    total = int(gpu["memory_bytes"])
    properties = SimpleNamespace(
        name=gpu["name"],
        total_memory=total,
        major=gpu["major"],
        minor=gpu["minor"],
        is_integrated=False,
        multi_processor_count=gpu["sms"],
        warp_size=32,
        gcnArchName="",
        max_threads_per_multi_processor=2048,
        shared_memory_per_block=49152,
        shared_memory_per_block_optin=232448,
        regs_per_multiprocessor=65536,
        uuid="GPU-0",
        L2_cache_size=50 * 2**20,
    )
    cuda: Any = torch.cuda
    answers: dict[str, object] = {
        **dict.fromkeys(_TRUE, True),
        **dict.fromkeys(_NOTHING),
        "device_count": local_size,
        "get_device_properties": properties,
        "get_device_name": gpu["name"],
        "get_device_capability": (gpu["major"], gpu["minor"]),
        "get_arch_list": [f"sm_{gpu['major']}{gpu['minor']}"],
        "initial_seed": 0,
        "current_blas_handle": 0,
        "utilization": 0,
        "memory_summary": "",
        "is_current_stream_capturing": False,
    }
    for name, value in answers.items():
        setattr(cuda, name, _says(value))
    cuda.synchronize = lambda device=None: host_waits(current())
    cuda.current_device = lambda: _state["device"]
    cuda.set_device = _set_device
    cuda.current_stream = lambda device=None: _state["current"]
    cuda.default_stream = lambda device=None: Stream.default()
    cuda.set_stream = lambda stream: _state.update(current=stream)
    cuda.stream, cuda.StreamContext, cuda.Stream, cuda.Event = _on, _on, Stream, StreamEvent
    cuda.streams.Stream, cuda.streams.Event = Stream, StreamEvent
    torch.Stream, torch.Event = Stream, StreamEvent  # type: ignore[misc, assignment]
    cuda.CUDAGraph = cuda.graphs.CUDAGraph = RecordedGraph
    cuda.graph_pool_handle = cuda.graphs.graph_pool_handle = _says((0, 0))
    torch._C._host_emptyCache = _says(None)
    for name, dtype in _OLD_NAMES.items():
        setattr(cuda, f"{name}Tensor", _Kinds(f"{name}Tensor", (), {"dtype": dtype}))
    torch.Generator = Generator  # type: ignore[misc]
    cuda.memory_allocated = cuda.memory_reserved = lambda device=None: memory.used
    cuda.max_memory_allocated = cuda.max_memory_reserved = lambda device=None: memory.peak
    cuda.mem_get_info = lambda device=None: (max(total - memory.used, 0), total)
    cuda.memory_stats = lambda device=None: _Zeros(
        {
            "allocated_bytes.all.current": memory.used,
            "allocated_bytes.all.peak": memory.peak,
            "reserved_bytes.all.peak": memory.peak,
            "active_bytes.all.peak": memory.peak,
        }
    )
    state = torch.Generator().get_state()  # real, so that it can be set again
    cuda.get_rng_state = lambda device="cuda": state
    cuda.get_rng_state_all = lambda: [state] * local_size
    for name in ("get_rng_state", "get_rng_state_all", "set_rng_state", "set_rng_state_all", "manual_seed"):
        setattr(cuda.random, name, getattr(cuda, name))
    cuda.device = _Device
    cuda.nccl.version = lambda: (2, 27, 5)
    cuda.default_generators = tuple(torch.Generator() for _ in range(local_size))
    for name in ("range_push", "range_pop", "mark", "range_start", "range_end"):
        setattr(cuda.nvtx, name, lambda *_, **__: 0)
    torch.version.cuda = torch.version.cuda or "12.8"
    accelerator: Any = torch.accelerator
    accelerator.is_available, accelerator.device_count = _says(True), _says(local_size)
    accelerator.current_accelerator = lambda check_available=False: torch.device("cuda")
    accelerator.current_device_index = accelerator.current_device_idx = lambda: _state["device"]
    accelerator.set_device_index = accelerator.set_device_idx = _set_device
    accelerator.current_stream, accelerator.set_stream = cuda.current_stream, cuda.set_stream
    accelerator.synchronize = cuda.synchronize
    torch._C._get_accelerator = lambda *_: torch.device("cuda")
    native: Any = torch._C  # names that a CPU build has not
    native._cuda_getDevice, native._cuda_getDeviceCount = cuda.current_device, _says(local_size)
    native._cuda_setDevice = _set_device


class _Zeros(dict[str, int]):
    def __missing__(self, key: str) -> int:
        return 0


class _Device:
    """`with torch.cuda.device(i)`."""

    def __init__(self, device: Any) -> None:
        self.idx = device

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def _set_device(device: Any) -> None:
    found = device if isinstance(device, int) else torch.device(device).index
    _state["device"] = 0 if found is None else found


def _says(value: Any) -> Any:
    return lambda *_, **__: value
