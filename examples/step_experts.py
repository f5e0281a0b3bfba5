"""Expert all-to-all against all-reduce at equal bytes: what each GPU sends is the same, what it takes is not.

An all-reduce over many hosts can be reduced inside each host first, so that each rank's port carries an eighth; an
all-to-all sends different bytes to every rank, and seven eighths and more of them have to leave the host.
"""

from __future__ import annotations

from syncline.describe import units
from syncline.fabric import load
from syncline.sim.nccl.describe import from_fabric
from syncline.sim.nccl.predict import predict

SIZES = [2**20, 2**24, 2**28, 2**30]

fabric = load("h100-64-rail")
print(f"{fabric.name}: one operation of so many bytes a GPU over all ranks\n")
print(f"{'hosts':>5} {'size':>9} {'all-reduce':>12} {'all-to-all':>12} {'ratio':>7}")
for num_hosts in (1, 4, 16):
    system = from_fabric(fabric, num_hosts=num_hosts)
    reduce_us = predict(system, "all_reduce", SIZES).time_us
    # Equal bytes on the wire: an all-reduce of S sends 2 S (n-1)/n, an all-to-all of 2 S as much.
    exchange_us = predict(system, "alltoall", [2 * size for size in SIZES]).time_us
    for size, one, other in zip(SIZES, reduce_us, exchange_us, strict=True):
        times = f"{units.show_time(one / 1e6):>12} {units.show_time(other / 1e6):>12}"
        print(f"{num_hosts:>5} {units.show_size(size):>9} {times} {other / one:>6.1f}x")
