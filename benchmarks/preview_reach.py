"""Training scripts that nobody here wrote: does `syncline preview` run them, and does it count as torch does?

    python benchmarks/run.py preview_reach --keep          all of preview_reach.yaml; forty minutes on two cores
    python benchmarks/preview_reach.py NAME ...            some of them, as lines

Packages (without what they depend on: torch stays) and repositories, by version and commit, go to a scratch folder
that ends with the run. Weights and data sets are not fetched: small stand-ins of the right form lie in the scratch
folder, and a script that wants more must be refused with words that name what is missing.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
LIST = HERE / "preview_reach.yaml"
CLUSTER, TIMEOUT_S = "h100-64-rail", 240
SCRATCH = "SYNCLINE_REACH"
"""A folder that is kept for the next run."""
COUNT = """
import json, sys; sys.path.insert(0, ".")
import torch, torchvision, timm, transformers, open_clip
from torch.utils.flop_counter import FlopCounterMode
DATA = {data!r}
with torch.device("meta"):
    model = {model}
    flops = 0
    if {input!r}:
        with FlopCounterMode(display=False) as counter:
            model(eval({input!r})).sum().backward()
        flops = counter.get_total_flops()
print(json.dumps([sum(p.numel() for p in model.parameters()), flops]))
"""
# The wheels of PyPI are built for CUDA; beside torch's CPU build their compiled parts cannot be loaded.
DECLARED = """
import torch
for _name in ("nms", "qnms"):
    torch.library.define("torchvision::" + _name, "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""


def environment(scratch: Path, packages: list[str]) -> Path:
    """Make an environment of the pinned packages over the one that runs this, and return its Python."""
    home = scratch / "environment"
    python = home / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", *packages], check=True)
        site = next(home.glob("lib/python*/site-packages"))
        base = next(path for path in sys.path if path.endswith("site-packages"))
        (site / "base.pth").write_text(f"import site; site.addsitedir({base!r})\n")
        for compiled in (*site.glob("torchvision/*.so"), *site.glob("torchaudio/lib/*.so")):
            compiled.unlink()
        with (site / "torchvision" / "extension.py").open("a") as stream:
            stream.write(DECLARED)
    return python


def repository(scratch: Path, name: str, commit: str) -> Path:
    """Return a folder with a repository of GitHub at a commit; git's `url.*.insteadOf` may name a mirror."""
    folder = scratch / "repositories" / name
    if not folder.exists():
        folder.mkdir(parents=True)
        url = f"https://github.com/{name}"
        for words in (["init", "-q"], ["fetch", "-q", "--depth", "1", url, commit], ["checkout", "-q", "FETCH_HEAD"]):
            subprocess.run(["git", *words], cwd=folder, check=False, env={**os.environ, "GIT_LFS_SKIP_SMUDGE": "1"})
    return folder


def verdict(row: dict[str, Any], python: Path, scratch: Path, repositories: dict[str, str]) -> dict[str, Any]:
    """Preview one script and judge what came of it."""
    owner, name, *inside = row["of"].split("/")
    folder = repository(scratch, f"{owner}/{name}", repositories[f"{owner}/{name}"]) / "/".join(inside)
    data, out = scratch / "data", scratch / "out"
    for path, target in row.get("links", {}).items():
        link = folder / path
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.exists():
            link.symlink_to(data / target)
    command = [row["env"]] if "env" in row else []
    command += shlex.split(row["run"].format(data=data, out=out))
    began = time.monotonic()
    asked = [str(python), "-m", "syncline", "preview", CLUSTER, "--json", "--timeout", f"{TIMEOUT_S}s", "--", *command]
    done = subprocess.run(
        asked, cwd=folder, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(HERE.parent / "src")},
    )  # fmt: skip
    found: dict[str, Any] = {"name": row["name"], "seconds": round(time.monotonic() - began, 1)}
    answer = json.loads(done.stdout) if done.stdout.startswith("{") else {}
    if done.returncode == 0:
        return found | counted(row, answer, python, folder, data)
    words = " ".join(str(answer.get(key, "")) for key in ("message", "where", "detail", "hint")) or done.stderr[-300:]
    refused = "lacks" in row and row["lacks"].lower() in words.lower() and "report it" not in words
    return found | {"verdict": "refused" if refused else "failed", "said": words[:400]}


def counted(row: dict[str, Any], answer: dict[str, Any], python: Path, folder: Path, data: Path) -> dict[str, Any]:
    """Return whether a preview's counts are torch's."""
    model = answer["model"] or {}
    found = {
        "verdict": "runs", "model": model.get("name"), "parameters": model.get("parameters"),
        "flops": answer["flops_per_rank"], "step_s": answer["step_time_s"],
        "collective_bytes": sum(use["size_bytes"] for use in answer["collectives"]),
    }  # fmt: skip
    if "model" not in row:
        return found
    code = COUNT.format(data=str(data), model=row["model"], input=row.get("input", ""))
    done = subprocess.run([str(python), "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        return found | {"verdict": "not counted", "said": done.stderr[-300:]}
    parameters, flops = json.loads(done.stdout.splitlines()[-1])
    found |= {"torch_parameters": parameters, "torch_flops": flops}
    right = parameters == found["parameters"] and (not flops or abs(found["flops"] / flops - 1) < 0.01)
    return found | ({} if right else {"verdict": "wrong"})


def run(only: tuple[str, ...] = ()) -> dict[str, Any]:
    """Preview every script of the list."""
    from rig import reach_data

    listed = yaml.safe_load(LIST.read_text(encoding="utf-8"))
    kept = os.environ.get(SCRATCH)
    with tempfile.TemporaryDirectory(prefix="syncline-reach-") as fresh:
        scratch = Path(kept or fresh)
        python = environment(scratch, listed["packages"])
        reach_data.write(scratch / "data", python)
        rows = []
        for row in listed["scripts"]:
            if only and row["name"] not in only:
                continue
            found = verdict(row, python, scratch, listed["repositories"]) | {"first": row.get("first", "")}
            rows.append(found)
            said = found.get("said", "")[:200]
            print(f"{found['name']:<28}{found['verdict']:<12}{said}", file=sys.stderr, flush=True)
    total = {each: sum(row["verdict"] == each for row in rows) for each in ("runs", "refused", "wrong", "failed")}
    first = {each: sum(row["first"] == each for row in rows) for each in total}
    return {"scripts": len(rows), **total, "first": first, "rows": rows}


if __name__ == "__main__":
    sys.path.append(str(HERE))
    run(tuple(sys.argv[1:]))
