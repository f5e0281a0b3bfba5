"""All that a borrowed GPU is asked for a preview's scores.

    python benchmarks/preview_gpu.py CAPTURES OUT [SECONDS [NAMES]]

CAPTURES holds a folder for each script whose kernels are to be timed, filled by `syncline preview --keep`. The steps of
every script below, or of those in NAMES (with commas), are timed and profiled (`preview_real.py`), each followed by the
kernels and the host of its capture. Needs Python with torch and CUDA, nothing else; some five minutes. What does not
begin within SECONDS is left out. OUT gets JSON files: `real.json` and one of kernel times for each capture.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
SCRIPTS = {
    "ddp": ["ddp.py"],
    "fsdp4": ["fsdp.py", "--layers", "4", "--vocab", "32000"],
    "fsdp8": ["fsdp.py", "--layers", "8", "--hidden", "2048", "--ffn", "8192", "--vocab", "32000"],
    "experts": ["experts.py"],
    "vision": ["vision.py"],
    "vit": ["vit.py"],
    "gpt": ["gpt.py"],
    "unet": ["unet.py"],
    "gptc": ["gpt.py", "--compile"],
    "dit": ["dit.py"],
    "translate": ["translate.py"],
}
BEGUN = time.monotonic()


def ran(command: list[str], most_s: float) -> subprocess.CompletedProcess[str]:
    """Run a command with the package on its path; whatever happens, the next is run too."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    left = float(sys.argv[3]) - (time.monotonic() - BEGUN) if len(sys.argv) > 3 else most_s
    if left < 5:
        return subprocess.CompletedProcess(command, 124, "", "no time left")
    try:
        most_s = min(most_s, left)
        return subprocess.run(
            [sys.executable, *command], env=environment, capture_output=True, text=True, timeout=most_s
        )
    except subprocess.TimeoutExpired as late:
        return subprocess.CompletedProcess(command, 124, "", f"not done within {late.timeout} s")


def main() -> None:
    """Run everything and say in a line what came of each."""
    captures, out = Path(sys.argv[1]), Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    found: dict[str, object] = {}
    names = sys.argv[4].split(",") if len(sys.argv) > 4 else list(SCRIPTS)
    for name in names:
        script, *args = SCRIPTS[name]
        path = str(ROOT / "examples/preview" / script)
        real = ran([str(ROOT / "benchmarks/preview_real.py"), path, *args], 75)
        line = next((line[7:] for line in real.stdout.splitlines() if line.startswith("RESULT ")), "")
        found[name] = json.loads(line) if line else {"error": real.stderr[-1500:]}
        (out / "real.json").write_text(json.dumps(found, indent=1))
        said = "timed" if line else real.stderr[-400:]
        print(f"{time.monotonic() - BEGUN:.0f} s: {name}: {said}", flush=True)
        if (captures / name).is_dir():
            kernels(captures / name, out / f"{name}-kernels.json")


def kernels(folder: Path, target: Path) -> None:
    """Time the kernels and the host of a captured script."""
    timed = ran(["-m", "syncline.previewing.capture.measure", str(folder), str(target)], 120)
    data = json.loads(target.read_text()) if not timed.returncode else {"kernels": [], "own": []}
    failed = [f"{row['op']}: {row['error']}" for row in data["kernels"] if "error" in row]
    said = f"{len(data['kernels'])} kernels, not timed: {failed}; {data['own']}" if data["own"] else timed.stderr[-400:]
    print(f"{time.monotonic() - BEGUN:.0f} s: {folder.name}: {said}", flush=True)


if __name__ == "__main__":
    main()
