"""The health check of Slurm fails closed, and the audit of a pod looks at its host."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from syncline.host.root import NOTES, Root

DEPLOY = Path(__file__).parents[2] / "deploy" / "audit"


def _check(folder: Path, says: str | None) -> tuple[int, str]:
    """Run the check with a syncline that says this (None: there is none); return its status and what was drained."""
    bin_ = folder / "bin"
    bin_.mkdir()
    scripts = {"scontrol": f'#!/bin/bash\necho "$*" >> "{folder}/drained"\n'}
    if says is not None:
        scripts["syncline"] = f"#!/bin/bash\ncat <<'END'\n{says}\nEND\n"
    for name, text in scripts.items():
        (bin_ / name).write_text(text)
        (bin_ / name).chmod(0o755)
    path = f"{bin_}:/usr/bin:/bin"
    ran = subprocess.run(["/bin/bash", str(DEPLOY / "slurm-health-check.sh")], env={**os.environ, "PATH": path},
                         capture_output=True, text=True, check=False)  # fmt: skip
    drained = folder / "drained"
    return ran.returncode, drained.read_text() if drained.exists() else ""


@pytest.mark.parametrize("word", ["OK", "WARNING"])
def test_a_good_host_is_left_alone(tmp_path: Path, word: str) -> None:
    assert _check(tmp_path, f"{word}: 61 checks") == (0, "")


def test_a_critical_host_is_drained(tmp_path: Path) -> None:
    status, drained = _check(tmp_path, "CRITICAL: pcie.link.width on 0000:1a:00.0")
    assert status == 1
    assert "State=DRAIN Reason=syncline: pcie.link.width on 0000:1a:00.0" in drained


@pytest.mark.parametrize(
    "says", ['FileError: there is no file "/etc/syncline/cluster.yaml".', "UNKNOWN: nothing read", "", None]
)
def test_a_check_that_cannot_run_drains_the_host(tmp_path: Path, says: str | None) -> None:
    status, drained = _check(tmp_path, says)
    assert status == 1
    assert "State=DRAIN Reason=syncline: the health check cannot run" in drained


def test_the_daemonset_audits_the_host_and_only_hosts_with_gpus() -> None:
    (document,) = yaml.safe_load_all((DEPLOY / "kubernetes-daemonset.yaml").read_text("utf-8"))
    pod = document["spec"]["template"]["spec"]
    assert pod["hostNetwork"] and pod["hostPID"] and pod["hostIPC"] and pod["nodeSelector"]
    (container,) = pod["containers"]
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    assert mounts["/host"]["readOnly"]
    assert "--root /host" in container["args"][0]


def test_the_mounted_root_of_a_running_host_is_no_capture(tmp_path: Path) -> None:
    assert Root.under(Path("/")).is_live
    (tmp_path / NOTES).mkdir()
    (tmp_path / NOTES / "manifest.json").write_text("{}")
    assert not Root.under(tmp_path).is_live
