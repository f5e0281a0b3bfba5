"""A world of any size with one process in it: collectives are recorded, and return at once."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.utils
import torch.nn.parallel.distributed
from torch.distributed import distributed_c10d as c10d
from torch.utils._python_dispatch import _disable_current_modes

from syncline.previewing.capture import cuda, sharding
from syncline.previewing.capture.device import moved
from syncline.previewing.capture.log import COLLECTIVE, RECV, SEND, Log
from syncline.previewing.capture.values import forget

NAME = "syncline_preview"
_HOMES = (dist, c10d, sys.modules["torch.distributed.device_mesh"])  # a mesh may start the world
FUNCTIONAL = {
    "all_reduce": "all_reduce",
    "all_reduce_": "all_reduce",
    "all_gather_into_tensor": "all_gather",
    "all_gather_into_tensor_out": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "reduce_scatter_tensor_out": "reduce_scatter",
    "all_to_all_single": "all_to_all",
    "broadcast": "broadcast",
    "broadcast_": "broadcast",
    "all_reduce_coalesced": "all_reduce",
    "all_gather_into_tensor_coalesced": "all_gather",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
}


class Collectives:
    """Writes collectives into the log."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.where: Callable[[], tuple[str, str, str, int]] = lambda: ("", "", "", 0)
        self.of_tensor: dict[int, int] = {}
        self.arrived: Callable[[], None] = lambda: None

    def add(self, what: str, ranks: tuple[int, ...], size: int, kind: str = COLLECTIVE, peer: int = -1) -> int:
        """Record a collective on its group's own stream, after what the stream in use has launched."""
        log = self.log
        if kind == RECV:
            self.arrived()
        group = log.groups.setdefault(ranks, len(log.groups))
        name = f"{kind if kind != COLLECTIVE else 'group'} {group}" + (f" {peer}" if peer >= 0 else "")
        stream = log.streams.setdefault(name, len(log.streams))
        module, line, phase, _ = self.where()
        for op in log.reached(cuda.current()):
            log.wait(stream, op)
        return log.add(kind, stream, -1, module, line, phase, [what, group, size, peer])

    def functional(self, func: Any, args: Any, kwargs: Any, outs: list[Any]) -> bool:
        """Record a functional collective or a wait for one; return whether it was one."""
        if func.namespace not in ("_c10d_functional", "_dtensor", "_c10d_functional_autograd"):
            return False
        name = func.overloadpacket.__name__
        if name == "wait_tensor":
            op = self.of_tensor.pop(args[0].untyped_storage()._cdata, None)
            self.log.wait(cuda.current(), op)
            return True
        if name not in FUNCTIONAL:
            return False
        group = next(each for each in reversed([*args, *kwargs.values()]) if isinstance(each, str) and _is_group(each))
        ranks = _ranks(c10d._resolve_process_group(group))  # type: ignore[arg-type]
        given = args[0] if isinstance(args[0], (list, tuple)) else [args[0]]
        what = FUNCTIONAL[name]
        counted = outs if what == "all_gather" else given
        op = self.add(what, ranks, _bytes(counted))
        for each in outs:
            self.of_tensor[each.untyped_storage()._cdata] = op
        return True


def _is_group(name: str) -> bool:
    try:
        c10d._resolve_process_group(name)  # type: ignore[arg-type]
    except Exception:
        return False
    return True


def _ranks(group: Any) -> tuple[int, ...]:
    return tuple(sorted(dist.get_process_group_ranks(group)))


def _bytes(given: Any) -> int:
    """Return the bytes of a tensor, or of all in a list."""
    return sum(map(_bytes, given)) if isinstance(given, (list, tuple)) else int(given.numel() * given.element_size())


class FinishedCollective(dist.Work):
    """A collective that is through."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self.result = result

    def wait(self, timeout: Any = None) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True

    def get_future(self) -> Any:
        future: Any = torch.futures.Future()
        future.set_result(self.result)
        return future


class PendingCollective(FinishedCollective):
    """A collective under way: to wait for it is to make the stream in use wait."""

    def __init__(self, log: Log, op: int, result: Any) -> None:
        super().__init__(result)
        self.log, self.op = log, op

    def wait(self, timeout: Any = None) -> bool:
        self.log.wait(cuda.current(), self.op)
        return True

    def get_future(self) -> Any:
        """Return a future; DDP's reducer takes it at once and waits for it when the backward is through."""
        if torch._C._current_autograd_node() is not None:
            torch.autograd.Variable._execution_engine.queue_callback(self.wait)
        else:
            self.wait()
        return super().get_future()


OUTPUT, INPUT = 0, 1


def _collective(what: str, counted: int) -> Any:
    """Return the method of a collective, of which the bytes of its outputs or of its inputs count."""

    def method(self: CapturedGroup, outputs: Any, inputs: Any = None, opts: Any = None) -> PendingCollective:
        result = outputs if isinstance(outputs, list) else [outputs]
        return self._done(what, _bytes((outputs, inputs)[counted]), result)

    return method


class CapturedGroup(dist.ProcessGroup):
    """A process group of which one rank exists."""

    collectives: Collectives

    def __init__(self, rank: int, size: int) -> None:
        super().__init__(rank, size)  # type: ignore[call-arg]
        self._rank, self._size = rank, size
        self.own_name, self.own_desc = "", "undefined"

    def _done(self, what: str, size: int, result: Any, kind: str = COLLECTIVE, peer: int = -1) -> PendingCollective:
        op = self.collectives.add(what, _ranks(self), size, kind, peer)
        return PendingCollective(self.collectives.log, op, result)

    def allreduce(self, tensors: Any, opts: Any = None) -> PendingCollective:
        if getattr(opts, "reduceOp", None) == dist.ReduceOp.SUM:
            for each in tensors:  # every rank is taken to hold what this one does
                known = getattr(each, "_stand_in", None)
                forget(each)
                if known is not None:
                    each._stand_in = known * self._size
        return self._done("all_reduce", _bytes(tensors), tensors)

    allreduce_coalesced = allreduce

    reduce = _collective("reduce", OUTPUT)
    broadcast = _collective("broadcast", OUTPUT)
    allgather = all_gather_single = _allgather_base = _collective("all_gather", OUTPUT)
    all_gather_single_coalesced = allgather_into_tensor_coalesced = allgather_coalesced = allgather
    reduce_scatter = reduce_scatter_single = _reduce_scatter_base = _collective("reduce_scatter", INPUT)
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced = reduce_scatter
    alltoall = _collective("all_to_all", INPUT)
    gather = _collective("gather", INPUT)
    scatter = _collective("scatter", OUTPUT)

    def all_to_all_single(
        self, output: Any, given: Any, out_splits: Any = None, in_splits: Any = None, opts: Any = None
    ) -> PendingCollective:
        known = getattr(given, "_stand_in", None)
        if known is not None:
            output._stand_in = known
        return self._done("all_to_all", _bytes(given), [output])

    alltoall_base = all_to_all_single

    def barrier(self, opts: Any = None) -> PendingCollective:
        return self._done("barrier", 0, [])

    def send(self, tensors: Any, dst: int, tag: int = 0) -> PendingCollective:
        return self._done("send", _bytes(tensors), tensors, SEND, self._global(dst))

    def recv(self, tensors: Any, src: int, tag: int = 0) -> PendingCollective:
        forget(*tensors)
        return self._done("recv", _bytes(tensors), tensors, RECV, self._global(src))

    def recv_anysource(self, tensors: Any, tag: int = 0) -> PendingCollective:
        return self._done("recv", _bytes(tensors), tensors, RECV, self._global((self._rank - 1) % self._size))

    def _global(self, rank: int) -> int:
        return int(dist.get_global_rank(self, rank)) if self is not dist.group.WORLD else rank

    def _start_coalescing(self, device: Any = None) -> None: ...

    def _end_coalescing(self, device: Any = None) -> PendingCollective:
        log = self.collectives.log
        return PendingCollective(log, len(log.ops) - 1, [])

    def _get_backend(self, device: Any = None) -> Any:
        return self

    def _set_group_name(self, name: str) -> None:
        self.own_name = name
        super()._set_group_name(name)

    @property
    def group_name(self) -> str:
        return self.own_name

    pg_name = group_name

    def _set_group_desc(self, desc: str) -> None:
        self.own_desc = desc

    @property
    def group_desc(self) -> str:
        return self.own_desc

    def _set_default_backend(self, backend: Any) -> None: ...

    def _register_backend(self, *_: Any) -> None: ...

    def getBackendName(self) -> str:
        return NAME

    def name(self) -> str:
        return NAME

    supports_coalescing = False
    supports_splitting = False

    def eager_connect_single_device(self, *_: Any) -> None: ...

    def abort(self) -> None: ...

    def shutdown(self) -> None: ...


def _muted(fn: Any) -> Any:
    @wraps(fn)
    def plain(*args: Any, **kwargs: Any) -> Any:
        with _disable_current_modes():
            return fn(*args, **kwargs)

    return plain


def _nothing(*_: Any, **__: Any) -> None: ...


def open_world(
    name: str,
    group: type[CapturedGroup],
    usual: str,
    is_enough: Callable[[Any, str], bool] = lambda *_: False,
    sized: Callable[[int], None] = lambda _: None,
) -> None:
    """Give `torch.distributed` the world that the launcher described, made of groups of which one rank exists.

    `usual` is the backend of scripts that name none. Where `is_enough`, called with the real `init_process_group` and
    the backend that was asked for, has made a world itself, that is taken. `sized` hears what size a script asks for.
    """
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.Backend.register_backend(name, lambda store, at, size, timeout: group(at, size), devices=["cpu", "cuda"])
    asked = {"name": usual}
    start, new_group = dist.init_process_group, dist.new_group

    def init(named: Any = None, *_: Any, **given: Any) -> None:
        asked["name"] = str(named or given.get("backend") or usual).split(":")[-1]
        sized(int(given.get("world_size") or world))
        with _disable_current_modes():
            if not is_enough(start, asked["name"]):
                start(name, store=dist.HashStore(), rank=rank, world_size=world)

    def group_of(ranks: Any = None, *_: Any, **given: Any) -> Any:
        if ranks is not None and rank not in ranks:
            return dist.GroupMember.NON_GROUP_MEMBER  # of thousands of groups that a mesh has, this rank is in four
        kept = {k: v for k, v in given.items() if k in ("use_local_synchronization", "group_desc")}
        with _disable_current_modes():
            return new_group(ranks, **kept)

    for module in _HOMES:
        put: Any = module
        put.init_process_group, put.new_group = init, group_of
        put.get_backend = lambda group=None: asked["name"]
    c10d._store_based_barrier = _nothing
    for home in (torch.distributed.utils, torch.nn.parallel.distributed):
        home._verify_param_shape_across_processes = _nothing  # type: ignore[attr-defined]


def prepare(
    collectives: Collectives, backend: str, bucket_bytes: int = 0, sized: Callable[[int], None] = lambda _: None
) -> None:
    """Record the collectives of a script, whose usual backend this is; DDP's buckets may be another size."""
    CapturedGroup.collectives = collectives
    open_world(NAME, CapturedGroup, backend, sized=sized)
    for module in _HOMES:
        put: Any = module
        put.is_nccl_available = lambda: True
        put.all_gather_object, put.broadcast_object_list = _all_gather_object, _nothing
        put.gather_object, put.scatter_object_list = _gather_object, _scatter_object
        put.monitored_barrier = put.send_object_list = put.set_timeout = put._set_pg_timeout = _nothing
        put.recv_object_list = _unknown_object
    _buckets(collectives.log, bucket_bytes)
    _meshes()
    sharding.one_part()


class _Reducer(dist.Reducer):
    """DDP's reducer, which need not rebuild buckets that are made as rebuilt ones are."""

    def _rebuild_buckets(self) -> bool:
        return False


def _buckets(log: Log, asked: int) -> None:
    """Make DDP's buckets as it rebuilds them after the first step: in the order in which gradients arrive."""
    assign = dist._compute_bucket_assignment_by_size
    first, cap = dist._DEFAULT_FIRST_BUCKET_BYTES, 25 * 2**20

    def assigned(tensors: Any, limits: Any, sparse: Any = (), indices: Any = ()) -> Any:
        if len(limits) > 1 or any(sparse) or indices:
            return assign(tensors, limits, sparse, indices)
        last = len(tensors) - 1
        buckets, sizes = assign(list(reversed(tensors)), [first, _cap.get("bytes", cap)], [], [])
        return [[last - i for i in bucket] for bucket in reversed(buckets)], list(reversed(sizes))

    helper = torch.nn.parallel.DistributedDataParallel._ddp_init_helper

    def kept(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.bucket_bytes_cap = asked or self.bucket_bytes_cap
        _cap["bytes"] = int(self.bucket_bytes_cap)
        log.facts["bucket_bytes"] = _cap["bytes"]
        return helper(self, *args, **kwargs)

    torch.nn.parallel.DistributedDataParallel._ddp_init_helper = kept  # type: ignore[method-assign]
    for module in (dist, c10d):
        put: Any = module
        put._compute_bucket_assignment_by_size, put.Reducer = assigned, _Reducer


_cap: dict[str, int] = {}


_CONSTANT = (
    "device_type", "mesh_dim_names", "size", "ndim", "shape", "mesh", "get_rank", "get_coordinate", "get_local_rank",
    "_sym_get_coordinate", "_is_current_rank_part_of_mesh", "get_group",
)  # fmt: skip
"""What a mesh says of itself, always the same; DTensor asks with every operator."""


def _cached(fn: Any) -> Any:
    """Return a method of meshes whose answers are kept."""
    known: dict[tuple[Any, ...], tuple[Any, Any]] = {}  # with the mesh, so that its number is not given to another

    @wraps(fn)
    def inner(self: Any, *args: Any, **kwargs: Any) -> Any:
        key = (id(self), args, *kwargs.items())
        if key in known:
            return known[key][1]
        found = fn(self, *args, **kwargs)
        if found is not None and found is not False:  # a mesh in the making knows less
            known[key] = (self, found)
        return found

    return inner


def _meshes() -> None:
    """Make device meshes with real tensors: they are read, not computed with."""
    from torch.distributed.device_mesh import DeviceMesh

    for name in _CONSTANT:
        value = vars(DeviceMesh).get(name)
        if isinstance(value, property):
            setattr(DeviceMesh, name, property(_cached(_muted(value.fget))))
        elif value is not None:
            setattr(DeviceMesh, name, _cached(_muted(value)))
    for name, value in [(name, value) for name, value in vars(DeviceMesh).items() if name not in _CONSTANT]:
        if isinstance(value, staticmethod):
            setattr(DeviceMesh, name, staticmethod(_muted(value.__func__)))
        elif callable(value) and (not name.startswith("__") or name in ("__init__", "__getitem__")):
            setattr(DeviceMesh, name, _muted(value))
        elif isinstance(value, property):
            setattr(DeviceMesh, name, property(_muted(value.fget)))
    from torch.distributed import device_mesh
    from torch.distributed.tensor import DTensor

    put: Any = DTensor
    put.device = property(lambda self: self._local_tensor.device)
    put.is_cuda = property(lambda self: self._local_tensor.is_cuda)
    move = put.to

    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Move one; C++, which was told another device, would copy and thereby sum one that lies there already."""
        return self if moved(self._local_tensor, *args, **kwargs) is None else move(self, *args, **kwargs)

    put.to = to

    of_mesh = device_mesh.init_device_mesh
    for module in [each for each in sys.modules.values() if vars(each).get("init_device_mesh") is of_mesh]:
        module.init_device_mesh = _muted(of_mesh)  # type: ignore[attr-defined]


def _all_gather_object(out: list[Any], given: Any, group: Any = None) -> None:
    out[:] = [given] * len(out)


def _gather_object(given: Any, out: Any = None, *_: Any, **__: Any) -> None:
    if out:
        out[:] = [given] * len(out)


def _scatter_object(out: list[Any], given: Any = None, *_: Any, **__: Any) -> None:
    if given:
        out[0] = given[0]


def _unknown_object(*_: Any, **__: Any) -> Any:
    raise RuntimeError("a preview runs one rank at a time: what another rank would send as an object is not known")
