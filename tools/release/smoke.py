"""A smoke test of an installed syncline: every verb is asked something, wherever nothing but its dependencies is there.

python tools/release/smoke.py         a verb whose extra is missing must name it and what to type
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

FILES = {
    "c.yaml": "hosts: 2\nhost: dgx-h100\nnetwork: fat-tree NDR\n",
    "j.yaml": "model: gpt3-2.7b\nparallel: {zero: 1}\nbatch: {global: 64, micro: 1, sequence: 2048}\n",
    "jobs.yaml": "jobs:\n  - {name: a, hosts: 1, step: {compute: 100ms, exchange: 100MB}}\n",
    "both.yaml": "cluster: c.yaml\njobs:\n  - {name: a, size: 1MiB, hosts: 0-1, algorithm: ring}\n",
    "job.log": "n1:1:9 [0] transport/net_ib.cc:1299 NCCL WARN NET/IB : Got completion with status=12 opcode=129\n",
    "perf.log": "# Using devices, all_reduce_perf\n"
    + "".join(
        f"  {size} {size // 4} float sum -1 {size / 2e5:.1f} 200.0 375.0 0 {size / 2e5:.1f} 200.0 375.0 0\n"
        for size in (1 << 24, 1 << 26, 1 << 28)
    ),
    "train.py": "print('a script')\n",
    "trace.json": json.dumps(
        {
            "traceEvents": [
                {
                    "ph": "X",
                    "cat": "kernel",
                    "name": "gemm",
                    "pid": 0,
                    "tid": 7,
                    "ts": 10 * n,
                    "dur": 8,
                    "args": {"stream": 7},
                }
                for n in range(50)
            ]
        }
    ),
    "two.yaml": "hosts: 2\nhost: {gpu: T4, gpus: 1, nics: 1, nic: i350, link: 1GbE}\nnetwork: fat-tree 1GbE\n",
    "r.yaml": "algorithms: [ring, direct]\nsizes: [1MiB]\ncalibrate_on: [256KiB, 512KiB, 2MiB]\nrepeats: 3\n"
    "steps: 2\ntrain_steps: 0\nmodel: {width: 64, depth: 1, batch: 1, length: 16}\nsynchronisations: [ddp, int8]\n",
}
TORCH = find_spec("torch") is not None
#: Verb -> a command that does something small, and the statuses that are an answer (a finding has one of its own).
ASKS: dict[str, tuple[str, tuple[int, ...]]] = {
    "fabric": ("fabric show c.yaml --svg c.svg --html c.html", (0,)),
    "schedule": ("schedule verify ring --ranks 8", (0,)),
    "explain": ("explain trace.json", (0,)),
    "doctor": ("doctor . --cluster c.yaml", (0, 1)),
    "simulate": ("simulate allreduce --cluster c.yaml --size 1MiB", (0,)),
    "rehearse": ("rehearse two.yaml r.yaml --scale 0.1", (0,)),
    "calibrate": ("calibrate step c.yaml j.yaml --measured 400ms --out profile.yaml", (0,)),
    "scenario": ("scenario both.yaml", (0,)),
    "share": ("share c.yaml jobs.yaml", (0,)),
    "step": ("step c.yaml j.yaml --html s.html", (0,)),
    "preview": ("preview c.yaml -- python train.py", (2,) * TORCH),
    "plan": ("plan c.yaml j.yaml --fix tp=1,pp=1,micro=1 --html p.html", (0,)),
    "design": ("design j.yaml --gpus 16 --link NDR", (0,)),
    "place": ("place c.yaml j.yaml --hosts host-[00-01]", (0,)),
    "cost": ("cost c.yaml", (0,)),
    "audit": ("audit", (0, 1, 2, 3)),
    "discover": ("discover found.yaml", (0, 2)),
    "nccl": ("nccl c.yaml j.yaml", (0,)),
    "diagnose": ("diagnose job.log", (0,)),
    "bench": ("bench --read perf.log --cluster c.yaml", (0, 1)),
    "lab": ("lab show c.yaml", (0,)),
    "watch": ("watch --for 1s", (0,)),
    "serve": ("serve --port 0 --for 1s", (0,)),
    "validate": ("validate claims C02", (0,)),
    "guide": ("guide cluster-file", (0,)),
}


def asked(verb: str, folder: str) -> str:
    """Ask one verb; return what was wrong with the answer, or nothing."""
    command, good = ASKS[verb]
    done = subprocess.run(
        [sys.executable, "-m", "syncline", *command.split()],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout + done.stderr
    missing = done.returncode == 2 and "pip install" in said
    fine = (done.returncode in good or missing) and said.strip() and "Traceback" not in said
    note = f"  [{done.returncode}{', an extra is not there' if missing else ''}]" if done.returncode else ""
    print(f"{'ok' if fine else 'FAILED':7}{command}{note}", flush=True)
    return "" if fine else said[-1500:]


def main() -> None:
    """Ask every verb and say how it went."""
    from syncline.cli.shell.verbs import VERBS

    failed = [f"{verb}: not asked" for verb in VERBS if verb not in ASKS]
    with tempfile.TemporaryDirectory(prefix="syncline-smoke-") as folder:
        for name, text in FILES.items():
            Path(folder, name).write_text(text)
        for verb in ASKS:
            if wrong := asked(verb, folder):
                failed.append(verb)
                print(wrong)
    numbers = ", ".join(f"{name} {version(name)}" for name in ("numpy", "pydantic", "typer", "rich", "networkx"))
    print(f"Python {sys.version.split()[0]}, syncline {version('syncline')}, {numbers}")
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
