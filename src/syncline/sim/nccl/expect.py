"""How long NCCL's choice really takes: hops, bytes and pipelines of the chosen algorithm and protocol.

us, bytes and GB/s (1e3 bytes per us). Each function prices one pair for an array of sizes. The mechanisms, and what
each is worth, are in `docs/method/collectives.md`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from syncline.errors import SimulationError
from syncline.sim.double_tree import tree_share
from syncline.sim.nccl.job import RING_OPS, NcclOperation, pipe

Floats = npt.NDArray[np.float64]
_MIB = 2.0**20
#: Chunks of a send over NVLink and over the network, and channels of a communicator: NCCL's defaults
#: (P2pNvlChunkSize and P2pNetChunkSize of src/init.cc, MAXCHANNELS of src/include/device.h).
NVLINK_CHUNK, NETWORK_CHUNK, MAX_CHANNELS = 2.0**19, 2.0**17, 32
#: What one channel copies to a NIC's buffer: 14.6, 17.2 and 17.9 GB/s on three systems of B200 with one or two a peer.
NETWORK_CHANNEL_GBps = 17.0
#: Messages up to this many bytes travel inside the command itself, which costs some NICs more than a send (Cassini).
_INLINE_BYTES = 192


def _ring_bytes_us(job: NcclOperation, sizes: Floats, busbw_GBps: float) -> Floats:
    share = job.steps / job.n if job.op in RING_OPS else 1.0
    return np.asarray(sizes * share / (busbw_GBps * 1e3))


def _ll_hop_us(job: NcclOperation) -> float:
    return job.net.hop_us * job.scale.ll_hop


def _ll128_hop_us(job: NcclOperation) -> float:
    """A hop of 128-byte lines: in NCCL's own table 8.5 us to the 5 of words."""
    return (job.net.hop_us + 3.5) * job.scale.ll_hop


def _simple_hop_us(job: NcclOperation) -> float:
    return job.net.simple_hop_us * job.scale.simple_hop


def _chunk_share(job: NcclOperation, sizes: Floats) -> Floats:
    """Share of a full hop that a small chunk costs: part of a hop is copying, which a smaller chunk has less of."""
    kib = sizes / job.n / job.channels / 1024
    return np.asarray(np.maximum(job.machine.ring_small_share, kib**2 / (kib**2 + job.machine.ring_chunk_KiB**2)))


def ring_simple(job: NcclOperation, sizes: Floats) -> Floats:
    """Ring with large chunks: alone a pipeline over NVLink, across hosts every step is paced by the network hop."""
    bytes_us = _ring_bytes_us(job, sizes, job.ring_GBps)
    if job.hosts == 1:
        inside = (3.4 if job.system.nvlink_GBps else 5.7) * job.steps * job.scale.intra
        return 8.4 + pipe(inside, bytes_us, job.machine.one_host_pipeline * job.scale.pipeline, 256 * _MIB, sizes)
    return np.asarray(8.4 + job.overlapped(job.steps * _simple_hop_us(job) * _chunk_share(job, sizes), bytes_us))


def ring_ll128(job: NcclOperation, sizes: Floats) -> Floats:
    """Ring with 128-byte flagged lines: cheaper steps, 92 % of the bandwidth, a cap per channel."""
    per_channel = job.cap("ring_ll128_per_channel_GBps")
    busbw = min(0.92 * job.ring_GBps, job.machine.ring_ll128_share * job.graphs.ring.num_channels * per_channel)
    bytes_us = _ring_bytes_us(job, sizes, busbw)
    inside = 1.9 * job.scale.intra
    if job.hosts == 1:
        loss = job.machine.one_host_pipeline * job.scale.pipeline
        return 14 + pipe(inside * job.steps, bytes_us, loss, 256 * _MIB, sizes)
    hop = job.net.ring_hop * _ll128_hop_us(job)
    path_us = (job.steps - job.inter) * inside + job.inter * hop
    pace_us = job.steps * job.net.ring_ll128_pace_us * job.scale.ll_hop
    return np.asarray(14 + job.overlapped(max(path_us, pace_us), bytes_us))


def ring_ll(job: NcclOperation, sizes: Floats) -> Floats:
    """Ring with 8-byte flagged words: the cheapest steps, half the bandwidth, buffers copied through host memory.

    Between hosts a proxy thread posts the messages of all channels in turn: a hop costs more the more there are.
    """
    channels = np.clip(sizes / (4096 * job.n), 1, job.channels)
    kib = sizes / job.n / channels / 1024
    near, inside = job.steps - job.inter, job.one_host_ll_us_per_KiB
    moved = _ring_bytes_us(job, sizes, job.ring_GBps / 2)
    if job.hosts == 1:
        return np.asarray(6.6 + near * job.intra_ll_us + np.maximum(near * kib * inside * job.scale.ll_copy, moved))
    copy = job.machine.ring_ll_copy * job.net.ll_us_per_KiB * job.host_copy
    copied = (near * inside + job.inter * copy) * kib * job.scale.ll_copy
    hop = job.net.ring_hop * _ll_hop_us(job)
    path_us = near * job.intra_ll_us + job.inter * hop * channels**job.net.proxy
    pace_us = job.steps * job.machine.ring_ll_pace * hop
    return np.asarray(6.6 + np.maximum(path_us, pace_us) + np.maximum(copied, moved))


def _tree_GBps(job: NcclOperation) -> float:
    """Algorithm bandwidth of a tree: a two-host tree sends S each way, a larger one 2S from its busiest host."""
    caps = 1.2 * job.graphs.ring.num_channels * job.cap("tree_per_channel_GBps") / 2
    if job.hosts == 1:
        return min(job.nvlink_GBps / 2, caps)
    # Every GPU of the chain inside a host passes the sum up and the result down, but the one at the NIC has one
    # neighbour less.
    chain = job.nvlink_GBps * job.p / max(1, job.p - 1) / 2
    return min(job.nic_GBps / tree_share(job.hosts), chain, caps)


def tree_ll(job: NcclOperation, sizes: Floats) -> Floats:
    """Double tree with LL: a chain inside the host and log2 hops between hosts, each paying per KiB."""
    channels = np.clip(sizes / 4096, 1, job.channels)
    kib = sizes / channels / 1024
    chunk = job.machine.tree_ll_chunk_KiB
    near = np.minimum(kib, chunk)
    copy = job.net.ll_us_per_KiB * job.host_copy * job.scale.ll_copy
    hop = _ll_hop_us(job)
    inside = (job.p - 1) * (job.intra_ll_us + 0.03 * near)
    between = job.levels * hop + job.depth**0.75 * copy * near  # words are passed on while later ones arrive
    channels_us = job.net.channel_us * job.host_copy * channels
    return np.asarray(6.8 + 2 * (inside + between) + copy * np.maximum(kib - chunk, 0) + channels_us)


def tree_ll128(job: NcclOperation, sizes: Floats) -> Floats:
    """Double tree with LL128: a pipeline over the tree's depth."""
    per_channel = 0.85 * job.graphs.ring.num_channels * job.cap("tree_ll128_per_channel_GBps") / 2
    algbw = min(0.94 * _tree_GBps(job), per_channel)
    if job.hosts > 1:
        algbw = min(algbw, job.net.ll128_share * job.nic_GBps)
    latency = 2 * (1.25 * job.intra_ll128 * (job.p - 1) + job.levels * _ll128_hop_us(job))
    loss = job.machine.tree_ll128_pipeline * job.net.pipeline * job.scale.pipeline
    channels = np.clip(sizes / 5120, 1, job.channels)
    channels_us = job.net.channel_us * job.host_copy * channels
    return 14 + pipe(latency, sizes / (algbw * 1e3), loss, 64 * _MIB, sizes) + channels_us


def tree_simple(job: NcclOperation, sizes: Floats) -> Floats:
    """Double tree with large chunks."""
    latency = 2 * (4 * job.scale.intra * (job.p - 1) + job.depth * _simple_hop_us(job))
    loss = job.machine.tree_simple_pipeline * job.net.pipeline * job.scale.pipeline
    return 8.4 + pipe(latency, sizes / (_tree_GBps(job) * 1e3), loss, 64 * _MIB, sizes)


def _nvls_GBps(job: NcclOperation, ranks: int) -> float:
    """Algorithm bandwidth of an in-switch reduction among `ranks`: each sends S once and receives S(1 + 1/n)."""
    by_generation = job.machine.nvls_efficiency if ranks <= 8 else job.machine.nvls_wide_efficiency
    efficiency = by_generation[job.row]
    scale = job.scale.efficiency if job.hosts == 1 else 1.0
    share = 1 + 1 / ranks if job.op == "all_reduce" else (ranks - 1) / ranks
    return efficiency * job.system.nvlink_GBps * scale / share


def nvls(job: NcclOperation, sizes: Floats) -> Floats:
    """In-switch reduction inside one NVLink domain, or across hosts with in-network reduction behind it (SHARP)."""
    loss = job.machine.nvls_pipeline[job.row] * job.width * job.scale.pipeline
    if job.hosts == 1:
        return pipe(25 * job.scale.intra, sizes / (_nvls_GBps(job, job.n) * 1e3), loss, 256 * _MIB, sizes)
    algbw = 0.9 * min(job.nic_GBps, _nvls_GBps(job, job.p))
    return pipe(25 * job.scale.intra + 2 * _simple_hop_us(job), sizes / (algbw * 1e3), loss, 64 * _MIB, sizes)


def nvls_tree(job: NcclOperation, sizes: Floats) -> Floats:
    """In-switch reduction inside, double tree between NVLink domains."""
    inside = job.machine.nvlstree_inside * _nvls_GBps(job, job.p)
    if job.hosts > 2 and job.p > 8:
        inside /= 2  # an inner node of the double tree passes everything twice; on 8 GPUs the NICs bind first
    share = tree_share(job.hosts)
    nic = (job.machine.nvlstree_share if share > 1 else 1.0) * job.nic_GBps / share
    algbw = min(inside, nic)
    latency = 25 * job.scale.intra + 2 * job.depth * _simple_hop_us(job)
    loss = job.machine.nvlstree_pipeline[job.row] * job.width * job.scale.pipeline
    # A chunk climbs every level before the first one comes down; chunks have their full size from 64 MiB on.
    fill_us = job.net.nvlstree_level_us * job.width * 2 * (job.depth - 1) * np.minimum(1.0, sizes / (64 * _MIB))
    return pipe(latency, sizes / (algbw * 1e3), loss, 64 * _MIB, sizes) + fill_us


def pat(job: NcclOperation, sizes: Floats) -> Floats:
    """PAT for one GPU per host: logarithmic hops, NCCL's own latencies, 90 % of a ring's bandwidth (judgement)."""
    latency = 8 + job.depth * _simple_hop_us(job) / 3.5 + 2.8 * job.n
    return np.asarray(latency + _ring_bytes_us(job, sizes, 0.9 * job.ring_GBps))


def collnet(job: NcclOperation, sizes: Floats) -> Floats:
    """In-network reduction (SHARP): each host sends and receives S once (judgement: no public row below 2 GiB).

    Eight B200 and NDR ports a host carried 281 of 400 GB/s on 4 to 32 hosts (togethercomputer/together-nccl-tests).
    """
    algbw = min(0.72 * job.nic_GBps, 0.97 * _nvls_GBps(job, job.p) if job.system.facts.nvls else job.nvlink_GBps / 2)
    return pipe(
        3 + 2 * 3.7 + 0.8 * (job.p - 1) + 2 * job.net.simple_hop_us, sizes / (algbw * 1e3), 0.6, 64 * _MIB, sizes
    )


def copies(job: NcclOperation, sizes: Floats) -> Floats:
    """All-to-all and send/recv: plain copies between peers, paying per remote peer."""
    return _send_recv(job, sizes) if job.op == "send_recv" else _all_to_all(job, sizes)


def _send_recv(job: NcclOperation, sizes: Floats) -> Floats:
    """One peer, so no pipeline of hops: launch, bytes through the channels that this size gets, and what fills them.

    A message below 1 MiB goes through one channel, from there on through a peer's share of them, more past 64 MiB.
    """
    machine, net = job.machine, job.net
    channel = machine.p2p_channel_GBps[job.row] / _peer_channels(8)
    channels = np.where(sizes < _MIB, 1.0, np.clip(sizes / (16 * _MIB), _peer_channels(job.n), MAX_CHANNELS))
    if job.hosts == 1:
        # GPUs that no switch joins have a link of their own to each other one.
        links = 1 if job.system.has_nvswitch or not job.system.nvlink_GBps else max(1, job.p - 1)
        rate = np.minimum(machine.sendrecv_share * job.nvlink_GBps / links, channel * channels)
        # The second half of a channel's first chunk leaves while the next one is copied.
        first = np.where(sizes < _MIB, 0.0, np.minimum(sizes / channels, NVLINK_CHUNK) / 2)
        return np.asarray(machine.p2p_base_us + (sizes / rate + first / channel) / 1e3)
    per_gpu = min(job.system.nic_GBps, net.nic_cap_GBps) * max(1, job.system.num_nics // job.p)
    per_gpu = min(per_gpu * machine.p2p_net_share, job.nvlink_GBps, job.system.ring_cap_Bps / 1e9)
    one = per_gpu * min(1.0, net.efficiency * job.scale.efficiency)
    # Parts of a chunk each, as many at once as a remote peer has channels.
    channels = np.clip(2.0 ** np.ceil(np.log2(np.maximum(sizes / NETWORK_CHUNK, 1.0))), 1.0, remote_channels(job))
    rate = np.minimum(one, NETWORK_CHANNEL_GBps * channels)
    latency = machine.p2p_base_us + _ll_hop_us(job)
    # The first chunk is copied to the NIC's buffer before anything leaves.
    first = np.minimum(sizes / channels, NETWORK_CHUNK) / NETWORK_CHANNEL_GBps
    return np.asarray(latency + (sizes / rate + first) / 1e3)


def remote_channels(job: NcclOperation) -> int:
    """Return the channels of a peer on another host: a few to begin with, fewer the more ranks share them.

    NVIDIA/nccl src/graph/paths.cc halves them while they, times the ranks, are more than the channels of a communicator
    serve. Published runs of send/receive put the limits at 2 and 64 up to NCCL 2.28, at 4 and 128 from 2.29 on.
    """
    most, served = (4, 128) if job.system.nccl >= (2, 29) else (2, 64)
    return max(min(most, served // job.n), job.system.num_nics // job.p, 1)


def _peer_channels(ranks: int) -> int:
    """Return the channels that a peer gets at least: a communicator's 32 shared out, a power of two.

    NVIDIA/nccl src/enqueue.cc halves them while they, times the ranks, are more than there are.
    """
    return 1 << (max(32 // ranks, 1).bit_length() - 1)


def _all_to_all(job: NcclOperation, sizes: Floats) -> Floats:
    n, p, net, machine = job.n, job.p, job.net, job.machine
    local_us = sizes * (p - 1) / n / (machine.alltoall_share * job.nvlink_GBps * 1e3)
    if job.hosts == 1:
        local_us = local_us / job.scale.efficiency
        return pipe(machine.p2p_base_us, local_us, machine.alltoall_pipeline * job.scale.pipeline, 1024 * _MIB, sizes)
    tiny = np.where(sizes / n <= _INLINE_BYTES, net.alltoall_tiny, 1.0)
    peers_us = net.alltoall_peer_us * (n - p) * tiny
    # Of two hosts all pairs are neighbours; of N, all but 2/N of them meet others' traffic on the way.
    shared = 1 - net.alltoall_falloff * (1 - 2 / job.hosts)
    efficiency = min(1.0, net.alltoall_efficiency * job.scale.efficiency) * shared * job.crowd_share
    wire_GBps = min(job.wire_GBps, job.system.pairs_cap_Bps / 1e9)
    bytes_us = p * sizes * (n - p) / n / (wire_GBps * efficiency * 1e3)
    if not job.system.nvlink_GBps:
        # Without NVLink everything a GPU sends, near or far, leaves through its one PCIe slot.
        slot_us = local_us * (n - 1) / max(1, p - 1) if p > 1 else bytes_us
        local_us = np.maximum(slot_us, bytes_us)
    return np.asarray((net.alltoall_base_us + peers_us) * job.scale.ll_hop + np.maximum(bytes_us, local_us))


_FORMULAE = {
    ("Ring", "LL"): ring_ll,
    ("Ring", "LL128"): ring_ll128,
    ("Ring", "Simple"): ring_simple,
    ("Tree", "LL"): tree_ll,
    ("Tree", "LL128"): tree_ll128,
    ("Tree", "Simple"): tree_simple,
    ("NVLS", "Simple"): nvls,
    ("NVLSTree", "Simple"): nvls_tree,
    ("PAT", "Simple"): pat,
    ("CollNetDirect", "Simple"): collnet,
    ("CollNetChain", "Simple"): collnet,
    ("P2P", "Simple"): copies,
}


def expected_us(job: NcclOperation, pair: tuple[str, str], sizes: Floats) -> Floats:
    """Return how long a pair really takes at each size, launch included."""
    if pair not in _FORMULAE:
        raise SimulationError(f"no formula for {pair[0]}/{pair[1]}.")
    time_us = _FORMULAE[pair](job, sizes)
    if job.system.gpus_per_process > 1:
        # One process launches on its GPUs in turn while the last call still runs: the slower of the two sets the pace.
        each = job.machine.p2p_launch_us_per_gpu if pair[0] == "P2P" else job.machine.launch_us_per_gpu
        time_us = (time_us**3 + (each * job.system.gpus_per_process) ** 3) ** (1 / 3)
    far_us = job.system.far_us if pair[0] == "P2P" else job.system.long_us * _lines(job, pair[0])
    return np.asarray(time_us + job.system.call_us + far_us)


def _lines(job: NcclOperation, algorithm: str) -> int:
    """Return how often data passes a line between sites, one pass after the other.

    A ring over sites leaves one for the other and comes back: two lines a pass, of which an all-reduce has two. A
    broadcast and a reduction end before they are back at their root. But each ring enters its host at another GPU, so
    on most of them other ranks of that host are behind the root, and they are served last.
    """
    if algorithm in ("Tree", "NVLSTree"):
        return 2 * job.system.tree_lines
    if algorithm == "Ring":
        return {"all_reduce": 4, "all_gather": 2, "reduce_scatter": 2}.get(job.op, 2 if job.p > 1 else 1)
    return 2  # PAT's distances add up to one way round; switches that reduce pass sums to the root, and results back
