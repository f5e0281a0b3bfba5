"""Inside the namespaces: builds the fabric, starts a worker on each host, passes rank 0's lines on."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from rig import network, two_sites

NUM_HOSTS = 4


def main() -> int:
    """Run the task of the first argument and return the worst exit code."""
    network.build(NUM_HOSTS)
    folder = Path(__file__).resolve().parent
    task = json.loads(sys.argv[1])
    if "between_sites_bps" in task:
        two_sites.part(NUM_HOSTS, task["between_sites_bps"])
    workers = [
        network.start(
            host,
            [sys.executable, str(folder / task.get("worker", "worker.py")), json.dumps(task)],
            {
                "MASTER_ADDR": "10.7.0.1", "MASTER_PORT": "29500", "RANK": str(host), "WORLD_SIZE": str(NUM_HOSTS),
                "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1",
                "TORCH_CPP_LOG_LEVEL": "ERROR",
            },
        )
        for host in range(NUM_HOSTS)
    ]  # fmt: skip
    assert workers[0].stdout is not None
    for line in workers[0].stdout:
        sys.stdout.write(line)
        sys.stdout.flush()
    return max(worker.wait() for worker in workers)


if __name__ == "__main__":
    sys.exit(main())
