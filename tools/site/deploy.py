"""The files of deploy/ as a page: a wheel does not bring them."""

from __future__ import annotations

from blocks import ROOT

TITLES = {
    "audit": "Audit: health checks of Slurm, Kubernetes and node-problem-detector",
    "containers": "Containers: agent, planner, training example",
    "prometheus": "Prometheus: scraping, alert rules, a receiver of Alertmanager",
    "grafana": "Grafana: dashboards",
}
KINDS = {".sh": "bash", ".sbatch": "bash", ".yml": "yaml", ".Dockerfile": "dockerfile"}
LONGEST = 5000


def deploy_page() -> str:
    """Return every file of deploy/ that fits a page, to copy; longer ones are named."""
    parts = ["# Files to deploy", "", "What `deploy/` of the repository holds, to copy: a wheel does not bring it."]
    for folder, title in TITLES.items():
        parts += ["", f"## {title} {{#{folder}}}"]
        for path in sorted((ROOT / "deploy" / folder).iterdir()):
            text = path.read_text("utf-8")
            kind = KINDS.get(path.suffix, path.suffix[1:])
            if len(text) > LONGEST:
                parts += ["", f"`{path.name}` ({len(text) >> 10} KiB) is in the repository alone."]
            else:
                parts += ["", f'```{kind} title="{path.name}"', text.rstrip("\n"), "```"]
    return "\n".join(parts) + "\n"
