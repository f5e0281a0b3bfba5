"""MSCCL programs in the shapes that public files have: rings that fuse, all pairs over scratch, trees, out of place."""

from __future__ import annotations

Spot = tuple[str, int]


def step(
    number: int, kind: str, src: Spot, dst: Spot, *, cnt: int = 1, dep: tuple[int, int] = (-1, -1), hasdep: int = 0
) -> str:
    return (
        f'<step s="{number}" type="{kind}" srcbuf="{src[0]}" srcoff="{src[1]}" dstbuf="{dst[0]}" dstoff="{dst[1]}" '
        f'cnt="{cnt}" depid="{dep[0]}" deps="{dep[1]}" hasdep="{hasdep}"/>\n'
    )


def block(number: int, send: int, recv: int, chan: int, steps: list[str]) -> str:
    return f'<tb id="{number}" send="{send}" recv="{recv}" chan="{chan}">\n{"".join(steps)}</tb>\n'


def gpu(number: int, chunks: tuple[int, int, int], blocks: list[str]) -> str:
    i, o, s = chunks
    return f'<gpu id="{number}" i_chunks="{i}" o_chunks="{o}" s_chunks="{s}">\n{"".join(blocks)}</gpu>\n'


def algo(coll: str, ngpus: int, chunks: int, inplace: int, gpus: list[str], channels: int = 1) -> str:
    head = f'<algo name="test" proto="Simple" nchannels="{channels}" nchunksperloop="{chunks}" ngpus="{ngpus}" '
    return f'{head}coll="{coll}" inplace="{inplace}">\n{"".join(gpus)}</algo>\n'


def fused_ring(n: int, channels: int) -> str:
    """All-reduce in place: s, rrs ..., rrcs, rcs ..., r in one thread block a channel."""
    gpus = []
    for rank in range(n):
        blocks = []
        for c in range(channels):
            order = [("s", rank), *(("rrs", rank - k) for k in range(1, n - 1)), ("rrcs", rank - n + 1)]
            order += [*(("rcs", rank - n - k) for k in range(n - 2)), ("r", rank - 2 * n + 2)]
            spots = [(kind, ("i", at % n * channels + c)) for kind, at in order]
            blocks.append(block(c, (rank + 1) % n, (rank - 1) % n, c, [step(k, *s, s[1]) for k, s in enumerate(spots)]))
        gpus.append(gpu(rank, (n * channels, 0, 0), blocks))
    return algo("allreduce", n, n * channels, 1, gpus, channels)


def all_pairs(n: int, *, wait: bool = True) -> str:
    """All-reduce in place over scratch: send, receive into scratch, wait for all, reduce, send the sum; n chunks."""
    gpus = []
    for rank in range(n):
        peers = [p for p in range(n) if p != rank]
        steps = [step(k, "nop", ("i", -1), ("o", -1), cnt=0, dep=(k + 1, 1)) for k in range(len(peers) - 1)]
        last = len(peers) - 1
        for k in range(len(peers)):
            dep = (last + 1, 1) if k == 0 and wait else (-1, -1)
            steps.append(step(last + k, "re", ("s", k), ("i", rank), dep=dep, hasdep=int(k == last)))
        if not wait:
            steps = [step(k, "re", ("s", k), ("i", rank)) for k in range(len(peers))]
        blocks = [block(0, -1, -1, 0, steps)]
        done = len(steps) - 1
        for k, peer in enumerate(peers):
            slot = [p for p in range(n) if p != peer].index(rank)
            blocks.append(block(k + 1, peer, peer, 0, [
                step(0, "s", ("i", peer), ("s", slot)),
                step(1, "r", ("i", rank), ("s", k), hasdep=1),
                step(2, "s", ("i", rank), ("i", rank), dep=(0, done)),
                step(3, "r", ("i", peer), ("i", peer)),
            ]))  # fmt: skip
        gpus.append(gpu(rank, (n, 0, n - 1), blocks))
    return algo("allreduce", n, n, 1, gpus)


def chain(n: int) -> str:
    """All-reduce in place along a chain: rrs up, rrc at the end, rcs back, r at the start."""
    gpus = []
    for rank in range(n):
        if rank == 0:
            up, down = [step(0, "s", ("i", 0), ("i", 0), hasdep=1)], [step(0, "r", ("i", 0), ("i", 0), dep=(0, 0))]
            blocks = [block(0, 1, -1, 0, up), block(1, -1, 1, 0, down)]
        elif rank == n - 1:
            up, down = [step(0, "rrc", ("i", 0), ("i", 0), hasdep=1)], [step(0, "s", ("i", 0), ("i", 0), dep=(0, 0))]
            blocks = [block(0, -1, rank - 1, 0, up), block(1, rank - 1, -1, 0, down)]
        else:
            up = [step(0, "rrs", ("i", 0), ("i", 0), hasdep=1)]
            down = [step(0, "rcs", ("i", 0), ("i", 0), dep=(0, 0))]
            blocks = [block(0, rank + 1, rank - 1, 0, up), block(1, rank - 1, rank + 1, 0, down)]
        gpus.append(gpu(rank, (1, 0, 0), blocks))
    return algo("allreduce", n, 1, 1, gpus)


def out_of_place_gather() -> str:
    """All-gather of 4 GPUs out of place, two levels: s, r, rcs and cpy."""
    gpus = []
    for rank in range(4):
        near, far = rank ^ 1, rank ^ 2
        blocks = [
            block(
                0, -1, near, 0, [step(0, "r", ("i", 0), ("o", near)), step(1, "r", ("o", near ^ 2), ("o", near ^ 2))]
            ),
            block(1, near, far, 0, [step(0, "s", ("i", 0), ("o", rank)), step(1, "rcs", ("i", 0), ("o", far))]),
            block(2, far, -1, 0, [step(0, "s", ("i", 0), ("o", rank)), step(1, "cpy", ("i", 0), ("o", rank))]),
        ]
        gpus.append(gpu(rank, (1, 4, 0), blocks))
    return algo("allgather", 4, 4, 0, gpus)


def receive_first(n: int) -> str:
    """A ring in which everybody receives before it sends: a deadlock."""
    gpus = []
    for rank in range(n):
        before = (rank - 1) % n
        steps = [step(0, "r", ("o", before), ("o", before)), step(1, "s", ("o", rank), ("o", rank))]
        gpus.append(gpu(rank, (1, n, 0), [block(0, (rank + 1) % n, before, 0, steps)]))
    return algo("allgather", n, n, 1, gpus)
