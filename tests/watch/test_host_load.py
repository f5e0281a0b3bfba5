"""A host short of cores is told from a slow network."""

from __future__ import annotations

from pathlib import Path

from tests.watch.test_rules import one, warm

from syncline.watch.sources.host_load import HostLoad
from syncline.watch.sources.source import SourceTree


def tree(folder: Path, running: int, waited_us: int | None = None) -> SourceTree:
    (folder / "proc" / "pressure").mkdir(parents=True, exist_ok=True)
    (folder / "proc" / "loadavg").write_text(f"25.1 20.0 10.0 {running}/456 6125\n")
    if waited_us is not None:
        text = f"some avg10=99.00 avg60=99.00 avg300=99.00 total={waited_us}\nfull avg10=0.00 total=0\n"
        (folder / "proc" / "pressure" / "cpu").write_text(text)
    return SourceTree(folder)


def looks(folder: Path, running: int, share: float | None) -> str:
    said, load = "", HostLoad(tree(folder, running, 0 if share is not None else None), num_cpus=2)
    for second in range(1, 60):
        tree(folder, running, None if share is None else round(1e6 * share * second))
        said = load.look(float(second), 1.0)
    return said


def test_more_tasks_than_cores_that_wait_are_a_crowd(tmp_path: Path) -> None:
    assert "24 runnable tasks on 2 cores" in looks(tmp_path, 25, 0.99)
    assert "24 runnable tasks" in looks(tmp_path / "no-pressure", 25, None)


def test_few_tasks_or_tasks_that_do_not_wait_are_none(tmp_path: Path) -> None:
    assert looks(tmp_path, 3, 0.99) == ""
    assert looks(tmp_path / "calm", 25, 0.1) == ""
    assert HostLoad(SourceTree(tmp_path / "nothing")).look(1.0, 1.0) == ""


def test_on_a_crowded_host_slow_steps_alone_are_not_held_against_the_network() -> None:
    watch = warm()
    watch.run(40, step={"comm_s": 0.2}, is_crowded=True)
    assert [rule for _, _, rule, _ in watch.log if rule.startswith("job.")] == []
    watch.run(40, one(3, drops_per_s=20.0), step={"comm_s": 0.2}, is_crowded=True)
    assert watch.raised("link.loss")
    assert watch.raised("job.slower-than-planned")
