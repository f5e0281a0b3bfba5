"""A job that averages numbers until something stops it; the hosts named call another collective in the middle."""

import datetime
import os
import sys
import time

import torch
import torch.distributed as dist

TIMEOUT_S = 6
STEPS = 3000


def main(strays: list[str]) -> None:
    """Average, once a hundredth of a second."""
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    group = dist.new_group(timeout=datetime.timedelta(seconds=TIMEOUT_S))
    os.write(1, b"started\n")
    numbers = torch.zeros(1000)
    for step in range(STEPS):
        if step == 50 and os.environ["SYNCLINE_LAB_HOST"] in strays:
            dist.broadcast(numbers, 0, group=group)
        else:
            dist.all_reduce(numbers, group=group)
        time.sleep(0.01)


if __name__ == "__main__":
    main(sys.argv[1:])
