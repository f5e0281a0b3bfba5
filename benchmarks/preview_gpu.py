"""All that a borrowed GPU is asked for a preview's scores: `python benchmarks/preview_gpu.py CAPTURES OUT`.

CAPTURES holds a folder for each script below, filled by `syncline preview --keep`. For each, the script's own steps are
timed and profiled (`preview_real.py`), the kernels of its capture are timed once each, and the capture is made again
with the torch of that machine. Needs Python with torch and CUDA, nothing else; some five minutes. OUT gets JSON files.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SCRIPTS = {
    "ddp": ["ddp.py"],
    "fsdp4": ["fsdp.py", "--layers", "4", "--vocab", "32000"],
    "fsdp8": ["fsdp.py", "--layers", "8", "--hidden", "2048", "--ffn", "8192", "--vocab", "32000"],
    "experts": ["experts.py"],
    "vision": ["vision.py"],
}
GPU = {"name": "H200-SXM5-141GB", "memory_bytes": 141 * 10**9, "major": 9, "minor": 0, "sms": 132}
ALONE = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}


def ran(command: list[str], **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command with the package on its path; whatever happens, the next is run too."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **more}
    try:
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=150)
    except subprocess.TimeoutExpired as late:
        return subprocess.CompletedProcess(command, 124, "", f"not done within {late.timeout} s")


def main() -> None:
    """Run everything and say in a line what came of each."""
    captures, out = Path(sys.argv[1]), Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    for name, (script, *args) in SCRIPTS.items():
        path = str(ROOT / "examples/preview" / script)
        real = ran([sys.executable, str(ROOT / "benchmarks/preview_real.py"), path, *args])
        line = next((line[7:] for line in real.stdout.splitlines() if line.startswith("RESULT ")), "")
        (out / f"{name}-real.json").write_text(line or json.dumps({"error": real.stderr[-1500:]}))
        times = ["-m", "syncline.preview.capture.measure", str(captures / name), str(out / f"{name}-kernels.json")]
        timed = ran([sys.executable, *times])
        rows = json.loads((out / f"{name}-kernels.json").read_text())["kernels"] if not timed.returncode else []
        failed = [f"{row['op']}: {row['error']}" for row in rows if "error" in row]
        anew = out / f"{name}-capture.json"
        spec = {
            "out": str(anew), "steps": 3, "env": {**ALONE, "MASTER_PORT": "29500"}, "gpu": GPU, "stages": {},
            "command": {"script": path, "module": False, "args": args},
        }  # fmt: skip
        (out / "spec.json").write_text(json.dumps(spec))
        command = [sys.executable, "-m", "syncline.preview.capture", str(out / "spec.json")]
        again = ran(command, CUDA_VISIBLE_DEVICES="")
        status = json.loads(anew.read_text())["error"] or "ok" if anew.is_file() else again.stderr[-300:]
        step = json.loads(line)["step_s"] if line else real.stderr[-300:]
        said = f"{len(rows) - len(failed)} kernels timed" if rows else timed.stderr[-300:]
        print(f"{name}: step {step}; {said}; not timed: {failed}; captured again: {status}", flush=True)


if __name__ == "__main__":
    main()
