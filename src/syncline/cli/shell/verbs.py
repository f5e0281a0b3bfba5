"""The verbs of the command, in the order the manual shows them, and the manual of the command itself.

A verb's module is imported when the verb is asked for, not to list it.
"""

from __future__ import annotations

#: What a person wants -> the verbs for it, each with its one line of help.
GROUPS: dict[str, dict[str, str]] = {
    "Plan": {
        "fabric": "Describe, draw, price, build and convert a cluster.",
        "plan": "Find the best way to run a job and what to change first.",
        "step": "Predict one training step, and count the bytes it sends.",
        "preview": "Preview a training script on a cluster, without a GPU.",
        "simulate": "Simulate a collective, messages or flows on a cluster.",
        "design": "Find the fabric for a job and a budget.",
        "cost": "Say what a cluster and its jobs cost, owned or rented.",
        "place": "Map a job's ranks to an allocation's GPUs.",
        "share": "Several jobs on one cluster: hosts, slots, slowdowns.",
        "scenario": "Several jobs, tenants and failures on one cluster.",
        "schedule": "Build, draw, prove and price collective schedules.",
        "serve": "Plan in a browser: a form for a cluster and a job.",
    },
    "Run": {
        "rehearse": "Predict, run and compare on an emulated cluster.",
        "lab": "Run commands on an emulated copy of a cluster.",
        "calibrate": "Fit predictions to a measured step, collective, host or script.",
        "nccl": "Choose NCCL settings, and check that they took effect.",
    },
    "Check": {
        "explain": "Explain a traced step: where it goes and what to change.",
        "audit": "Check a host, or many, for what slows training.",
        "bench": "Measure collectives against what they should give.",
        "doctor": "Find what is wrong, where and how likely, from logs and tools.",
        "diagnose": "Find the first cause in logs of any size.",
        "discover": "Describe the cluster that hosts are part of.",
    },
    "Watch": {
        "watch": "Watch a host or a run next to its prediction.",
    },
    "Learn": {
        "guide": "Print a page of the documentation.",
        "validate": "Compare predictions with published measurements.",
    },
}
VERBS: dict[str, str] = {verb: line for verbs in GROUPS.values() for verb, line in verbs.items()}

#: Verbs that run something have a file in `cli/`. The others' commands derive from `questions/` (`COMMANDS`).
BY_HAND = frozenset(("audit", "calibrate", "guide", "lab", "serve", "validate", "watch"))

#: Verbs that moved -> where to. The old name runs the new command for one release.
RENAMED = {
    "capture": ("audit", "capture"),
    "compare-algorithms": ("simulate", "compare"),
    "top": ("watch", "--terminal"),
    "tune": ("calibrate", "tune"),
    "volumes": ("step", "volumes"),
}

HELP = """Plan, rehearse, run, check and watch the network side of distributed AI training.

Describe a cluster and a job once; every verb works from that description. Each verb has its own manual:
`syncline VERB --help`. Add --json to any command for one JSON object instead of text.
"""
EXAMPLES = (
    "syncline plan h100-64-rail llama3-70b",
    "syncline simulate allreduce --cluster h100-64-rail --size 1GiB",
    "syncline fabric show dgx-h100-superpod --html superpod.html",
    "syncline audit",
    "syncline diagnose train.log",
)
