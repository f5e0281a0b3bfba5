"""A smoke test of an installed syncline: every verb answers, in an environment that has nothing but its dependencies.

python tools/release/smoke.py         asks each verb something; a verb whose extra is missing must say which
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

JOB = "model: gpt3-2.7b\nparallel: {zero: 1}\nbatch: {global: 64, micro: 1, sequence: 2048}\n"
CLUSTER = "hosts: 2\nhost: dgx-h100\nnetwork: fat-tree NDR\n"
LOG = "n1:1:9 [0] transport/net_ib.cc:1299 NCCL WARN NET/IB : Got completion with status=12 opcode=129 len=1\n"
#: Verb -> a command that computes something small. What is not here must at least print its manual.
ASKS = {
    "fabric": "fabric show c.yaml --svg c.svg --html c.html",
    "schedule": "schedule verify ring --ranks 8",
    "simulate": "simulate allreduce --cluster c.yaml --size 1MiB",
    "compare-algorithms": "compare-algorithms --cluster c.yaml --size 1MiB",
    "step": "step c.yaml j.yaml --html s.html",
    "volumes": "volumes j.yaml --gpus 16",
    "plan": "plan c.yaml j.yaml --fix tp=1,pp=1,micro=1 --html p.html",
    "cost": "cost c.yaml",
    "nccl": "nccl show c.yaml",
    "diagnose": "diagnose job.log",
    "lab": "lab show c.yaml",
    "serve": "serve --port 0 --for 1s",
    "validate": "validate claims C02",
}
#: Statuses that are an answer: findings of an audit or a diagnosis, and a missing extra that is named.
ANSWERS = (0, 1, 2)


def main() -> None:
    """Ask every verb and say how it went."""
    from syncline.cli.shell.verbs import VERBS

    failed = []
    with tempfile.TemporaryDirectory(prefix="syncline-smoke-") as folder:
        for name, text in (("c.yaml", CLUSTER), ("j.yaml", JOB), ("job.log", LOG)):
            Path(folder, name).write_text(text)
        for verb in VERBS:
            command = ASKS.get(verb, f"{verb} --help").split()
            done = subprocess.run(  # noqa: S603
                [sys.executable, "-m", "syncline", *command], cwd=folder, capture_output=True, text=True, check=False
            )
            bad = "Traceback" in done.stderr or done.returncode not in ANSWERS or not (done.stdout or done.stderr)
            bad = bad or (done.returncode == 2 and "pip install" not in done.stderr + done.stdout)
            print(
                f"{'FAILED' if bad else 'ok':7}{' '.join(command)}"
                + (f"  [{done.returncode}]" if done.returncode else "")
            )
            if bad:
                failed.append(verb)
                print(done.stderr[-1500:] or done.stdout[-500:])
    numbers = ", ".join(f"{name} {version(name)}" for name in ("numpy", "pydantic", "typer", "rich", "networkx"))
    print(f"Python {sys.version.split()[0]}, syncline {version('syncline')}, {numbers}")
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
