"""What `deploy/` ships can be read by those it is for: Kubernetes, Slurm, shells, node-problem-detector."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from syncline.advice.setting import recommend
from syncline.advice.snippet import kueue_topology, mpi_job, torch_job
from syncline.cli.audit import app
from syncline.fabric import load

DEPLOY = Path(__file__).parents[2] / "deploy"
SCRIPTS = sorted([*DEPLOY.rglob("*.sh"), *DEPLOY.rglob("*.sbatch")])
MANIFESTS = sorted(DEPLOY.rglob("kubernetes-*.yaml"))
API = json.loads(Path(__file__).with_name("kubernetes_api.json").read_text("utf-8"))
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


def wrong(value: Any, kind: str, at: str = "") -> list[str]:
    """Return what the Kubernetes API does not take in a value of a type: unknown and missing fields, other types."""
    if kind[0] in "[{":
        wanted = list if kind[0] == "[" else dict
        if not isinstance(value, wanted):
            return [f"{at}: {value!r} is no {wanted.__name__}"]
        inside = list(enumerate(value)) if isinstance(value, list) else list(value.items())
        return [problem for key, one in inside for problem in wrong(one, kind[1:-1], f"{at}.{key}")]
    form = API["types"].get(kind, kind)
    if isinstance(form, str):
        plain = {"string": str, "integer": int, "boolean": bool, "number": (int, float), "object": dict,
                 "intorstring": (int, str), "any": object}  # fmt: skip
        fits = isinstance(value, plain[form]) and (form == "boolean" or not isinstance(value, bool))  # type: ignore[arg-type]
        return [] if fits else [f"{at}: {value!r} is no {form}"]
    if not isinstance(value, dict):
        return [f"{at}: {value!r} is no {kind}"]
    fields = {name.rstrip("*"): type_ for name, type_ in form.items()}
    missing = [f"{at}: no {name[:-1]}" for name in form if name.endswith("*") and name[:-1] not in value]
    unknown = [f"{at}: {kind} has no field {name}" for name in value if name not in fields]
    known = [
        problem for name, one in value.items() if name in fields for problem in wrong(one, fields[name], f"{at}.{name}")
    ]
    return missing + unknown + known


def check_manifest(document: dict[str, Any]) -> None:
    assert API["kinds"][document["kind"]] == document["apiVersion"]
    assert wrong(document, document["kind"], document["kind"]) == []
    assert NAME.fullmatch(document["metadata"]["name"])


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_manifests_are_what_kubernetes_takes(path: Path) -> None:
    for document in documents(path):
        check_manifest(document)
        spec = document["spec"]
        template = spec["template"]
        if document["kind"] == "DaemonSet":
            wanted = spec["selector"]["matchLabels"]
            assert wanted.items() <= template["metadata"]["labels"].items()  # else it is refused
        if document["kind"] == "Job":
            assert template["spec"]["restartPolicy"] in ("Never", "OnFailure")
            assert spec["parallelism"] <= spec["completions"]
        check_pod(template["spec"])


@pytest.mark.parametrize("make", [mpi_job, torch_job], ids=lambda make: make.__name__)
def test_jobs_that_are_written_are_what_their_operators_take(make: Callable[..., str]) -> None:
    fabric = load("h100-64-rail")
    document = yaml.safe_load(make(fabric, recommend(fabric), 4, 8, nics=8, rdma=True))
    check_manifest(document)
    replicas = next(value for key, value in document["spec"].items() if key.endswith("ReplicaSpecs"))
    assert set(replicas) == ({"Launcher", "Worker"} if make is mpi_job else {"Master", "Worker"})
    for replica in replicas.values():
        check_pod(replica["template"]["spec"])
    if make is torch_job:  # the operator refuses a job without a container of this name
        assert all(one["template"]["spec"]["containers"][0]["name"] == "pytorch" for one in replicas.values())


def test_the_topology_that_is_written_is_what_kueue_takes() -> None:
    document = yaml.safe_load(kueue_topology(load("h100-64-rail")))
    check_manifest(document)
    labels = [level["nodeLabel"] for level in document["spec"]["levels"]]
    assert 1 <= len(labels) == len(set(labels)) <= 16
    assert labels[-1] == "kubernetes.io/hostname"  # it may stand at the lowest level only


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"paralelism": 2}, "Job.spec: JobSpec has no field paralelism"),
        ({"parallelism": "two"}, "Job.spec.parallelism: 'two' is no integer"),
        ({"suspend": 1}, "Job.spec.suspend: 1 is no boolean"),
        ({"template": {"spec": {}}}, "Job.spec.template.spec: no containers"),
    ],
)
def test_what_kubernetes_does_not_take_is_seen(change: dict[str, Any], problem: str) -> None:
    (document,) = documents(DEPLOY / "audit" / "kubernetes-job.yaml")
    document["spec"] |= change
    assert problem in wrong(document, "Job", "Job")


def check_pod(spec: dict[str, Any]) -> None:
    """Check what the schema cannot say: names, mounts of volumes that are there, amounts."""
    volumes = {volume["name"]: set(volume) - {"name"} for volume in spec.get("volumes", [])}
    assert all(len(source) == 1 for source in volumes.values())
    for container in spec["containers"]:
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
