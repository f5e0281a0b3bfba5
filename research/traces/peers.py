"""What Holistic Trace Analysis or TraceLens says of traces, run by the Python of an environment that has the tool.

    HTA/bin/python research/traces/peers.py hta TRACE...          # a line of JSON a trace
    LENS/bin/python research/traces/peers.py tracelens TRACE...

Seconds over all that the device recorded: computing, communication that no kernel hides, idle, and HTA's critical path.
"""

# mypy: ignore-errors
from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import resource
import sys
import tempfile


def hta(path: str) -> dict[str, object]:
    """Return what Holistic Trace Analysis says of one rank."""
    from hta.trace_analysis import TraceAnalysis

    with tempfile.TemporaryDirectory() as scratch:
        analysis = TraceAnalysis(trace_files={0: path}, trace_dir=scratch)
        row = analysis.get_temporal_breakdown(visualize=False).iloc[0]
        found = {
            "compute_s": float(row["compute_time(us)"]) / 1e6,
            "idle_s": float(row["idle_time(us)"]) / 1e6,
            "exposed_s": float(row["non_compute_time(us)"]) / 1e6,
        }
        overlap = analysis.get_comm_comp_overlap(visualize=False)
        found["comm_overlap"] = float(overlap["comp_comm_overlap_pctg"].iloc[0]) if len(overlap) else None
        try:
            graph, fine = analysis.critical_path_analysis(rank=0, annotation="ProfilerStep", instance_id=1)
            if fine:
                table = graph.get_critical_path_breakdown()
                kinds = table.groupby("bound_by")["duration"].sum()
                found["critical_path_s"] = {str(kind): float(took) / 1e6 for kind, took in kinds.items()}
        except Exception as error:
            found["critical_path_error"] = f"{type(error).__name__}: {error}"[:160]
        return found


def tracelens(path: str) -> dict[str, object]:
    """Return what TraceLens says of one rank."""
    from TraceLens import TreePerfAnalyzer

    table = TreePerfAnalyzer.from_file(path, add_python_func=False).get_df_gpu_timeline()
    seconds = {str(row["type"]): float(row["time ms"]) / 1e3 for _, row in table.iterrows()}
    return {
        "compute_s": seconds.get("computation_time"), "idle_s": seconds.get("idle_time"),
        "exposed_s": seconds.get("exposed_comm_time"), "copies_s": seconds.get("exposed_memcpy_time"),
        "whole_s": seconds.get("total_time"),
    }  # fmt: skip


def main() -> None:
    """Print what one tool says of each trace; an error is an answer too."""
    logging.disable(logging.CRITICAL)
    of, out = {"hta": hta, "tracelens": tracelens}[sys.argv[1]], os.fdopen(os.dup(1), "w")
    for path in map(os.path.abspath, sys.argv[2:]):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
        with contextlib.redirect_stdout(io.StringIO()):
            try:
                found = of(path)
            except BaseException as error:
                found = {"error": f"{type(error).__name__}: {error}"[:200]}
        found["cpu_s"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_utime - before, 2)
        out.write(json.dumps({"path": path, **found}) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
