"""What `deploy/` ships can be read by those it is for: Kubernetes, Slurm, shells, node-problem-detector."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from syncline.cli.audit import app

DEPLOY = Path(__file__).parents[2] / "deploy"
SCRIPTS = sorted([*DEPLOY.rglob("*.sh"), *DEPLOY.rglob("*.sbatch")])
MANIFESTS = sorted(DEPLOY.rglob("kubernetes-*.yaml"))
KINDS = {"DaemonSet": "apps/v1", "Job": "batch/v1", "Deployment": "apps/v1", "Service": "v1", "ConfigMap": "v1"}
POD = {"automountServiceAccountToken", "affinity", "containers", "hostNetwork", "hostPID", "initContainers",
       "nodeSelector", "restartPolicy", "serviceAccountName", "tolerations", "volumes"}  # fmt: skip
CONTAINER = {"args", "command", "env", "image", "imagePullPolicy", "livenessProbe", "name", "ports", "readinessProbe",
             "resources", "securityContext", "volumeMounts"}  # fmt: skip
SOURCES = {"configMap", "emptyDir", "hostPath", "persistentVolumeClaim", "secret"}
NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
SBATCH = {"job-name", "nodes", "ntasks-per-node", "time", "exclusive", "output", "error", "partition", "switches"}


def documents(path: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(path.read_text("utf-8")) if document]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_shell(path: Path) -> None:
    text = path.read_text("utf-8")
    assert text.startswith("#!/bin/bash\n")
    checked = subprocess.run(["bash", "-n", str(path)], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize("path", sorted(DEPLOY.rglob("*.sbatch")), ids=lambda path: path.name)
def test_batch_options_stand_before_the_first_command_and_exist(path: Path) -> None:
    lines = path.read_text("utf-8").splitlines()
    options = [at for at, line in enumerate(lines) if line.startswith("#SBATCH")]
    first = next(at for at, line in enumerate(lines) if line.strip() and not line.startswith("#"))
    assert options
    assert max(options) < first  # Slurm reads no option after the first command
    for at in options:
        match = re.fullmatch(r"#SBATCH --([a-z-]+)(=\S+)?", lines[at])
        assert match, lines[at]
        assert match.group(1) in SBATCH, lines[at]
    assert any(re.fullmatch(r"#SBATCH --time=\d\d:\d\d:\d\d", line) for line in lines)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_manifests_are_what_kubernetes_takes(path: Path) -> None:
    for document in documents(path):
        assert KINDS[document["kind"]] == document["apiVersion"]
        assert NAME.fullmatch(document["metadata"]["name"])
        spec = document["spec"]
        template = spec["template"]
        if document["kind"] == "DaemonSet":
            wanted = spec["selector"]["matchLabels"]
            assert wanted.items() <= template["metadata"]["labels"].items()  # else it is refused
        if document["kind"] == "Job":
            assert template["spec"]["restartPolicy"] in ("Never", "OnFailure")
            assert spec["parallelism"] <= spec["completions"]
        pod(template["spec"])


def pod(spec: dict[str, Any]) -> None:
    assert set(spec) <= POD
    volumes = {volume["name"]: set(volume) - {"name"} for volume in spec.get("volumes", [])}
    assert all(len(source) == 1 and source <= SOURCES for source in volumes.values())
    for container in spec["containers"]:
        assert set(container) <= CONTAINER
        assert NAME.fullmatch(container["name"])
        mounts = container.get("volumeMounts", [])
        assert {mount["name"] for mount in mounts} <= set(volumes)
        assert all(mount["mountPath"].startswith("/") for mount in mounts)
        for amounts in container.get("resources", {}).values():
            assert all(re.fullmatch(r"\d+(m|Mi|Gi)?", str(amount)) for amount in amounts.values())


def test_every_other_document_can_be_read() -> None:
    for path in sorted(DEPLOY.rglob("*")):
        if path.suffix in (".yml", ".yaml"):
            assert documents(path), path
        elif path.suffix == ".json":
            assert json.loads(path.read_text("utf-8")), path


def test_the_rule_of_node_problem_detector() -> None:
    told = json.loads((DEPLOY / "audit" / "node-problem-detector.json").read_text("utf-8"))
    assert told["plugin"] == "custom"
    conditions = {condition["type"] for condition in told["conditions"]}
    for rule in told["rules"]:
        assert rule["type"] in ("permanent", "temporary")
        assert rule["condition"] in conditions
        assert Path(rule["path"]).is_absolute()
    limit, own = (int(text[:-1]) for text in (told["pluginConfig"]["timeout"], told["rules"][0]["timeout"]))
    assert own <= limit


def test_commands_and_options_that_are_called_exist() -> None:
    audit: Any = get_command(app)
    known = {option for parameter in audit.params for option in parameter.opts} | set(audit.commands)
    texts = [
        path.read_text("utf-8") for path in (*SCRIPTS, *MANIFESTS, DEPLOY / "audit" / "node-problem-detector.json")
    ]
    called = [match for text in texts for match in re.findall(r"syncline\W+audit([^|>\n&]*)", text)]
    assert len(called) >= 6
    for arguments in called:
        words = re.findall(r"(?<![\w-])--[a-z][a-z-]+", arguments)
        assert set(words) <= known, arguments
