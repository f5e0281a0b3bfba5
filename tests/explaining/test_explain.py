"""A traced step explained: the account worked out by hand, causes that were planted, ranks that come late."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from syncline.errors import DescriptionError
from syncline.explaining import explain_recordings
from syncline.explaining.explain import Explanation
from syncline.explaining.reading import read_recordings
from syncline.timeline.account import Account, StepCause


def explained(*paths: Path) -> Explanation:
    return explain_recordings(read_recordings(paths))


def us(account: Account, cause: StepCause, what: str = "") -> float:
    rows = [line.seconds for line in account.lines if line.cause is cause and what in line.what]
    return round(sum(rows) * 1e6, 3)


def test_the_account_is_what_a_person_works_out(tmp_path: Path, written: Any) -> None:
    # Host: operators from 0 to 40 and 400 to 440. Device: product 50-150, all-reduce 150-250 (product 2 at 200-230
    # hides 30 of it), copy 250-270, idle until the last kernel, launched at 440, runs 450-500.
    trace = written()
    trace.step(1, 0, 500)
    trace.host("cpu_op", "aten::mm", 0, 40)
    trace.kernel("gemm_a", 30, 50, 100)
    trace.collective(35, 150, 100)
    trace.kernel("gemm_b", 38, 200, 30)
    trace.kernel("Memcpy DtoD", 39, 250, 20, cat="gpu_memcpy")
    trace.host("cpu_op", "aten::add", 400, 40)
    trace.kernel("elementwise", 440, 450, 50)
    found = explained(trace.save(tmp_path / "t.json.gz"))
    account = found.account
    assert account.step_s == pytest.approx(500e-6)
    assert us(account, StepCause.KERNELS, "matrix products") == 130
    assert us(account, StepCause.KERNELS, "memory-bound") == 50
    assert us(account, StepCause.NETWORK) == 70 and us(account, StepCause.COPIES) == 20
    assert round(account.hidden_s(StepCause.NETWORK) * 1e6) == 30
    # Idle 0-50: launching until 30 and 20 of latency; 270-450: Python until 400, then an operator and the launch.
    assert us(account, StepCause.HOST, "launching") == 50 + 50
    assert us(account, StepCause.HOST, "Python") == 130
    assert sum(line.seconds for line in account.lines) == pytest.approx(account.step_s, rel=1e-9)


def test_steps_are_the_devices_and_leave_no_gap(tmp_path: Path, written: Any) -> None:
    # The host marks steps of 100 us and runs ahead; the device needs 300 us for each.
    trace = written()
    for number in range(3):
        trace.step(number, 100 * number, 100)
        trace.kernel("gemm", 100 * number + 50, 60 + 300 * number, 300)
    found = explained(trace.save(tmp_path / "t.json"))
    windows = found.attributions[0].windows
    assert [round(value * 1e6) for value in windows.length_s] == [360, 300, 300]
    assert found.recorded_s == pytest.approx(960e-6)


def test_a_stall_of_the_host_is_named_with_its_line_and_what_it_costs(tmp_path: Path, written: Any) -> None:
    trace = written()
    trace.step(1, 0, 2000)
    trace.host("python_function", "train.py(42): train_step", 1, 1990)
    trace.host("python_function", "<built-in function sleep>", 320, 1000)
    trace.host("cpu_op", "aten::mm", 5, 20)
    trace.kernel("gemm_a", 20, 30, 300)
    trace.host("cpu_op", "aten::mm", 1400, 20)
    trace.kernel("gemm_b", 1415, 1420, 580)
    found = explained(trace.save(tmp_path / "t.json"))
    stall = found.stalls[0]
    assert stall.what == "Python outside operators" and stall.where == "train.py:42 train_step"
    assert stall.seconds == pytest.approx(1090e-6, rel=0.01)
    host = next(change for change in found.changes if "waiting for the host" in change.change)
    assert host.saves_s == pytest.approx((2000 - 880) * 1e-6, rel=0.02)  # the two kernels alone are left


def test_a_blocking_call_is_named_and_its_removal_replayed(tmp_path: Path, written: Any) -> None:
    # The host reads a value while the device works until 500, then needs 300 us to launch what follows.
    trace = written()
    trace.step(1, 0, 1500)
    trace.host("cpu_op", "aten::mm", 0, 20)
    trace.kernel("gemm_a", 15, 100, 400)
    trace.host("cpu_op", "aten::item", 30, 475)
    trace.host("cuda_runtime", "cudaStreamSynchronize", 40, 462)
    trace.host("cpu_op", "aten::mm", 510, 290)
    trace.kernel("gemm_b", 800, 805, 695)
    found = explained(trace.save(tmp_path / "t.json"))
    assert us(found.account, StepCause.HOST, "aten::item") == pytest.approx(292, abs=5)
    freed = next(change for change in found.changes if "blocking" in change.change)
    # Launched 300 us after the host went on at 40: long before the first product ends at 500.
    assert freed.step_s == pytest.approx(1200e-6, rel=0.02)


def test_a_copy_of_pageable_memory_that_waited_for_its_stream_can_be_hidden(tmp_path: Path, written: Any) -> None:
    # The call stays from 30 until the copy ends at 1000; before it the stream is busy until 700.
    trace = written()
    trace.step(1, 0, 1610)
    trace.kernel("gemm_a", 15, 100, 600)
    trace.host("cuda_runtime", "cudaMemcpyAsync", 30, 968, correlation=77)
    copy = {"stream": 7, "device": 0, "correlation": 77}
    trace.events.append({"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD (Pageable -> Device)", "pid": 0, "tid": 7,
                         "ts": 700, "dur": 300, "args": copy})  # fmt: skip
    trace.kernel("gemm_b", 1010, 1010, 600)
    found = explained(trace.save(tmp_path / "t.json"))
    hidden = next(change for change in found.changes if change.change.startswith("copies hidden"))
    assert hidden.saves_s == pytest.approx(300e-6, abs=5e-6)


def test_what_recording_took_of_the_host_is_in_no_promise(tmp_path: Path, written: Any) -> None:
    # 400 operators launch a kernel of 1 us each every 10 us: the host's own 10 us less what recording two events took.
    from syncline.explaining.replay import RECORDING_S

    trace = written()
    trace.step(1, 0, 4000)
    for n in range(400):
        trace.host("cpu_op", "aten::add", 10 * n, 8)
        trace.kernel("add", 10 * n + 7, 10 * n + 7, 1)
    found = explained(trace.save(tmp_path / "t.json"))
    host = next(change for change in found.changes if "waiting for the host" in change.change)
    assert host.step_s + host.saves_s == pytest.approx(4000e-6 - 400 * 2 * RECORDING_S, rel=0.01)
    assert host.share == pytest.approx(host.saves_s / (host.step_s + host.saves_s))


def test_a_kernel_that_starts_while_its_launch_returns_waited_for_the_host(tmp_path: Path, written: Any) -> None:
    trace = written()
    trace.host("cpu_op", "aten::mm", 0, 900)
    trace.host("cuda_runtime", "cudaLaunchKernel", 10, 490, correlation=99)  # the module is loaded at its first launch
    trace.events.append({"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 499, "dur": 20,
                         "args": {"stream": 7, "device": 0, "correlation": 99}})  # fmt: skip
    trace.kernel("gemm", 510, 519, 81)
    found = explained(trace.save(tmp_path / "t.json"))
    removal = found.account.removal(StepCause.HOST)
    assert us(found.account, StepCause.HOST) == 489
    assert removal is not None and removal.step_s == pytest.approx(101e-6)


def test_operators_whose_kernels_were_not_recorded_are_no_work_of_the_cpu(tmp_path: Path, written: Any) -> None:
    trace = written()
    trace.host("cpu_op", "aten::mm", 0, 50)
    trace.host("cuda_runtime", "cudaLaunchKernel", 10, 5, correlation=1)
    with pytest.raises(DescriptionError, match=r"launched 1 kernels \(cudaLaunchKernel\) and the trace has none"):
        read_recordings([trace.save(tmp_path / "t.json")])


def test_a_device_that_was_only_asked_for_its_name_did_nothing(tmp_path: Path, written: Any) -> None:
    trace = written()
    trace.host("cuda_runtime", "cudaDeviceSynchronize", 0, 5000)
    with pytest.raises(DescriptionError, match="no kernels and no operators"):
        read_recordings([trace.save(tmp_path / "t.json")])


def test_inspectors_processes_are_ranks_and_their_kernels_tell_the_time(tmp_path: Path) -> None:
    def line(pid: int, comm: str, rank: int, ranks: int, stop: int) -> str:
        return json.dumps({
            "header": {"id": "0x1", "comm_name": comm, "rank": rank, "n_ranks": ranks},
            "metadata": {"dump_timestamp_us": 9000, "hostname": "a", "pid": pid},
            "coll_perf": {"coll": "AllReduce", "coll_algo": "RING", "coll_proto": "LL128", "coll_exec_time_us": 100,
                          "coll_msg_size_bytes": 4096, "event_trace_ts": {"kernel_events": [
                              {"kernel_stop_ts": stop - 5}, {"kernel_stop_ts": stop}]}}})  # fmt: skip

    path = tmp_path / "inspector.log"
    path.write_text("\n".join([
        line(11, "TP", 0, 2, 1000), line(11, "DP", 2, 4, 1200), line(12, "TP", 1, 2, 1000), line(12, "DP", 3, 4, 1300),
    ]))  # fmt: skip
    two, three = read_recordings([path])
    assert (two.rank, three.rank, two.world) == (2, 3, 4)
    assert three.device.end_s - three.device.end_s[0] == pytest.approx([0, 300e-6])
    assert {call.algorithm for call in two.collectives} == {"ring LL128"} and two.lacks == three.lacks
    assert not explained(path).lost_overlap


def test_a_late_loader_is_input(tmp_path: Path, written: Any) -> None:
    trace = written()
    trace.step(1, 0, 1000)
    trace.host("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 600)
    trace.host("cpu_op", "aten::mm", 610, 10)
    trace.kernel("gemm", 620, 630, 370)
    found = explained(trace.save(tmp_path / "t.json"))
    assert us(found.account, StepCause.INPUT) == pytest.approx(600, abs=6)
    assert found.changes[0].change.startswith("input ready") and found.changes[0].saves_s == pytest.approx(
        600e-6, rel=0.03
    )


def ranks(tmp_path: Path, written: Any, arrives: list[float], ends: float = 1000) -> list[Path]:
    """Return traces of ranks that come to one all-reduce at these moments and leave it together."""
    paths = []
    for rank, at in enumerate(arrives):
        trace = written(rank, len(arrives))
        for step in range(3):
            base = 2000.0 * step
            trace.step(step, base, 2000)
            trace.host("cpu_op", "aten::mm", base, 20)
            trace.kernel("gemm", base + 10, base + 20, at - 20)
            trace.collective(base + 15, base + at, ends - at, ranks=len(arrives))
            trace.kernel("adam", base + 18, base + ends, 1000)
        paths.append(trace.save(tmp_path / f"rank{rank}.json"))
    return paths


def test_a_late_rank_is_told_from_a_slow_transfer(tmp_path: Path, written: Any) -> None:
    found = explained(*ranks(tmp_path, written, [400, 400, 900, 400]))
    assert found.late[0].rank == 2 and found.late[0].waited_s == pytest.approx(500e-6)
    assert "matrix products" in found.late[0].longer and found.late[0].longer_s == pytest.approx(500e-6)
    on_time = found.attributions[0].account(1)
    assert us(on_time, StepCause.LATE) == 500 and us(on_time, StepCause.NETWORK) == 100
    assert us(found.attributions[2].account(1), StepCause.LATE) == 0

    slow = explained(*ranks(tmp_path, written, [400, 400, 400, 400]))
    assert not slow.late and us(slow.account, StepCause.NETWORK) == 600 and us(slow.account, StepCause.LATE) == 0


def test_collectives_have_their_bandwidth_and_what_the_cluster_should_give(tmp_path: Path, written: Any) -> None:
    from syncline.fabric import load

    paths = ranks(tmp_path, written, [400] * 8)
    found = explain_recordings(read_recordings(paths), load("h100-64-rail")).collectives[0]
    assert (found.operation, found.ranks, found.calls, found.algorithm) == ("all-reduce", 8, 1, "ring LL")
    assert found.busbw_Bps == pytest.approx((1 << 20) * 2 * 7 / 8 / 600e-6)
    assert found.expected_s is not None and found.expected_s < 100e-6
    assert found.slow_s == pytest.approx(600e-6 - found.expected_s) and found.late_s == 0


def test_the_unchanged_replay_is_the_recording(tmp_path: Path, written: Any) -> None:
    from syncline.explaining.replay import replay_graph

    found = explained(*ranks(tmp_path, written, [400, 700]))
    for mine in found.attributions:
        for step in range(len(mine.windows)):
            graph = replay_graph(mine, step)
            assert graph is not None and graph.step_s() == pytest.approx(mine.windows.length_s[step], rel=1e-9)


def test_without_the_network_the_step_is_its_account_less_what_hid_behind_it(tmp_path: Path, written: Any) -> None:
    found = explained(*ranks(tmp_path, written, [400, 400]))
    removal = found.account.removal(StepCause.NETWORK)
    assert removal is not None and removal.saves_s == pytest.approx(600e-6, rel=0.02)
    assert removal.saves_s + removal.behind_s == pytest.approx(found.account.seconds(StepCause.NETWORK))


def test_a_mark_that_launches_nothing_is_no_step(tmp_path: Path, written: Any) -> None:
    trace = written()
    trace.step(1, 0, 500)
    trace.kernel("gemm", 20, 50, 400)
    trace.step(2, 500, 30)
    found = explained(trace.save(tmp_path / "t.json"))
    assert found.steps == 1 and found.account.name == "step 1"


def test_what_a_trace_measures_is_a_profile_that_step_reads(tmp_path: Path, written: Any) -> None:
    from syncline import explain, step
    from syncline.errors import UsageError
    from syncline.questions.explain import ExplainAnswer
    from syncline.sim.profile import load_profile, save_profile
    from syncline.sim.step.step import StepResult

    def measured(traces: list[Path], job: str | None = None) -> ExplainAnswer:
        answer = explain(traces, cluster="h100-64-rail", job=job)
        assert isinstance(answer, ExplainAnswer)
        return answer

    def predicted_s(**arguments: Any) -> float:
        result = step("h100-64-rail", "llama3-70b", **arguments).result
        assert isinstance(result, StepResult)
        return result.step_time_s

    shipped = predicted_s()
    paths = ranks(tmp_path, written, [400, 400, 400, 900], ends=1000)
    whole = written(0, 512)
    whole.step(1, 0, shipped * 1.2e6)
    whole.host("cpu_op", "aten::mm", 0, 20)
    whole.kernel("gemm", 10, 20, shipped * 1.2e6 - 20)
    trace = whole.save(tmp_path / "whole.json")
    found = measured([trace], "llama3-70b")
    assert found.result.predicted is not None and found.result.multipliers is not None
    assert found.result.predicted.change_s == pytest.approx(0.2 * shipped, rel=0.01)
    save_profile(found.profile, tmp_path / "profile.yaml")
    again_s = predicted_s(profile=tmp_path / "profile.yaml", level="analytic")
    assert again_s == pytest.approx(1.2 * shipped, rel=0.03)

    with pytest.raises(UsageError, match=r"of 4 ranks, the job of 512 H100"):
        measured(paths, "llama3-70b")

    # Four ranks tell the transfer (100 us) from the wait; one rank's trace measures no collective.
    several = measured(paths)
    save_profile(several.profile, tmp_path / "collectives.yaml")
    assert [one.op for one in load_profile(tmp_path / "collectives.yaml").collectives] == ["all_reduce"]
    with pytest.raises(UsageError, match="measures nothing"):
        _ = measured(paths[:1]).profile
