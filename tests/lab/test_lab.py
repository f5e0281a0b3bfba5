"""Real labs: what is built, what runs on it, how it ends."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from tests.lab.conftest import EXAMPLES, example, needed
from tests.lab.traffic import Transfer, wait_for_line

from syncline.errors import LabError
from syncline.fabric import load
from syncline.lab import Lab, Profile, draft
from syncline.lab.check import check
from syncline.lab.registry import find_lab, running_labs

PYTHON = [sys.executable, "-c"]
KERNEL_DEFAULTS = Profile(
    mtu_bytes=1500,
    burst_bytes=65_536,
    one_packet_per_buffer=False,
    tcp_limit_output_bytes=0,
    congestion_control="",
    slow_start_after_idle=True,
)
"""What an untuned emulation has."""


def words(*code: str) -> list[str]:
    return [*PYTHON, "; ".join(code)]


def marked(mark: str) -> dict[int, int]:
    """Return the processes that carry a mark in their environment, with the network namespace each is in.

    Other labs may come and go on the machine meanwhile, so counting all namespaces would prove nothing.
    """
    found = {}
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and f"MARK={mark}".encode() in Path(f"/proc/{entry}/environ").read_bytes():
                found[int(entry)] = os.stat(f"/proc/{entry}/ns/net").st_ino
        except OSError:
            continue
    return found


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> str:
    """Mark every process that is started from now on."""
    name = uuid.uuid4().hex
    monkeypatch.setenv("MARK", name)
    return name


def until(condition: object, timeout_s: float = 120.0) -> bool:
    assert callable(condition)
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return bool(condition())


# Building


def links_that_are_wrong(lab: Lab) -> list[tuple[str, float | None, float | None]]:
    """Return the links that are off at every look: on a busy machine one that is right may look slow or late once."""
    off: set[str] | None = None
    for _ in range(8):
        found = check(lab, seconds=0.08, tolerance=0.15)
        assert found.unreachable == ()
        assert found.num_pairs > 0
        wrong = {link.name for link in found.links if not link.ok}
        off = wrong if off is None else off & wrong
        if not off:
            return []
    return [(link.name, link.gap, link.measured_delay_s) for link in found.links if link.name in (off or ())]


@pytest.mark.parametrize("name", ["flat", "leaf_spine", "two_sites", "two_rails"])
def test_links_are_as_described_and_all_hosts_connect(name: str, request: pytest.FixtureRequest) -> None:
    lab: Lab = request.getfixturevalue(name)
    assert links_that_are_wrong(lab) == []
    assert lab.notes == ()


def test_a_host_looks_like_a_host(flat: Lab) -> None:
    code = (
        "import json, os, socket",
        "print(json.dumps({'name': socket.gethostname(), 'peer': socket.gethostbyname('host-02'), "
        "'back': socket.getnameinfo(('10.1.0.6', 1), socket.NI_NUMERICSERV)[0], "
        "'links': [n for _, n in socket.if_nameindex()], 'pid': os.getpid(), 'sees': os.path.exists('/proc/self')}))",
    )
    result = flat.execute("host-00", words(*code))
    seen = json.loads(result.stdout)
    assert (result.exit_code, result.stderr) == (0, "")
    assert (seen["name"], seen["peer"], seen["back"]) == ("host-00", flat.address("host-02"), "host-01")
    assert seen["links"] == ["lo", "eth0"]
    assert seen["pid"] < 1000
    assert seen["sees"]


def test_a_flow_gets_its_link_and_no_more(flat: Lab) -> None:
    wanted = flat.blueprint.cables[0].rate_Bps * flat.blueprint.profile.goodput_share
    for _ in range(3):  # a busy machine may stumble once
        flow = Transfer(flat, "host-00", "host-03", size_bytes=3e6).result()
        if abs(flow.rate_Bps / wanted - 1) < 0.15:
            return
    pytest.fail(f"{flow.rate_Bps * 8e-6:.1f} Mb/s instead of {wanted * 8e-6:.1f}")


def test_flows_take_the_path_that_the_kernel_names(leaf_spine: Lab) -> None:
    paths = leaf_spine.paths()
    assert len(paths.links) == 8 * 7
    names = leaf_spine.blueprint.link_names
    path = paths.path("host-00", "host-05")
    assert [names[link].split(" -> ")[0] for link in path][:2] == ["host-00/nic-0", "leaf-00"]
    assert names[path[-1]] == "leaf-01 -> host-05/nic-0"
    with leaf_spine.counters() as recording:
        Transfer(leaf_spine, "host-00", "host-05", size_bytes=5e5).result()
    carried = recording.counters.carried_bytes()
    busy = {name for name, count in carried.items() if count > 4e5}
    assert busy == {names[link] for link in path}
    ends = {paths.path(f"host-0{i}", f"host-0{j}")[1] for i in range(4) for j in range(4, 8)}
    assert len(ends) == 2, "the hash should use both uplinks"
    assert paths.load([("host-00", "host-05")]) == dict.fromkeys(path, 1)


def test_the_same_seed_gives_the_same_paths(leaf_spine: Lab) -> None:
    with Lab(example("leaf-spine")) as again, Lab(example("leaf-spine"), profile=Profile(hash_seed=99)) as other:
        assert again.paths() == leaf_spine.paths()
        assert other.paths() != leaf_spine.paths()


def test_a_trunk_has_its_latency(two_sites: Lab) -> None:
    code = (
        "import socket, time",
        "start = time.monotonic()",
        f"socket.create_connection(('{two_sites.address('west-host-07')}', 5001)).close()",
        "print(time.monotonic() - start)",
    )
    server = two_sites.spawn(
        "west-host-07",
        words("import socket", "l = socket.create_server(('', 5001))", "print('up', flush=True)", "l.accept()"),
    )
    wait_for_line(server, "up")
    round_trip_s = float(two_sites.execute("east-host-00", words(*code)).stdout)
    assert 0.010 <= round_trip_s < 0.5


@pytest.mark.parametrize(
    "profile",
    [Profile(switching="route"), Profile(shaper="htb"), KERNEL_DEFAULTS],
    ids=["routed", "htb", "kernel defaults"],
)
def test_other_profiles_build_and_carry(namespaces: None, profile: Profile) -> None:
    with Lab(example("flat"), scale=0.05, profile=profile) as lab:
        assert links_that_are_wrong(lab) == []


def test_hosts_cabled_to_each_other(namespaces: None, tmp_path: Path) -> None:
    text = """
hosts: 3
host: {gpu: T4, gpus: 1, nics: 2, nic: i350, link: 1GbE}
network:
  topology: explicit
  cables:
    - {a: host-00/nic-0, b: host-01/nic-0, rate: 50Mbps}
    - {a: host-01/nic-1, b: host-02/nic-0, rate: 50Mbps}
    - {a: host-02/nic-1, b: host-00/nic-1, rate: 50Mbps}
"""
    path = tmp_path / "ring.yaml"
    path.write_text(text)
    with Lab(load(path), scale=1) as lab:
        for a, b in (("host-00", "host-01"), ("host-01", "host-02"), ("host-02", "host-00")):
            assert len(lab.paths().path(a, b)) == 1
        assert Transfer(lab, "host-02", "host-00", size_bytes=2e5).result().size_bytes >= 2e5


def test_rails_joined_by_spines_and_links_that_are_described_as_broken(namespaces: None, tmp_path: Path) -> None:
    text = """
hosts: 4
host: {gpu: T4, gpus: 2, nics: 2, nic: i350, link: 1GbE}
network: {topology: rail-optimized, link: 1GbE, hosts_per_unit: 2, tiers: 2}
faults:
  - {device: host-03/nic-0}
  - {device: host-01/nic-1, rate: 100Mbps}
"""
    path = tmp_path / "rails.yaml"
    path.write_text(text)
    with Lab(load(path), scale=0.05) as lab:
        assert links_that_are_wrong(lab) == []
        found = check(lab, seconds=0.05, tolerance=0.2)
        assert {link.name for link in found.links if not link.up} == {
            name for name in lab.blueprint.link_names.values() if "host-03/nic-0" in name
        }
        assert {link.wanted_Bps for link in found.links if "host-01/nic-1" in link.name} == {12.5e6 * 0.05}
        last = lab.paths().path("host-00", "host-03")[-1]
        assert lab.blueprint.link_names[last].endswith("-> host-03/nic-1")  # its other address moved there


def test_links_can_be_reshaped_under_traffic(namespaces: None) -> None:
    with Lab(example("flat"), scale=0.05) as lab:
        name = "host-00/nic-0 -> leaf-00"
        lab.reshape({name: 1e6})
        assert Transfer(lab, "host-00", "host-01", size_bytes=3e5).result().rate_Bps < 1.5e6
        assert lab.blueprint.cables[0].rate_Bps == 1e6
        with pytest.raises(LabError, match="has no link"):
            lab.reshape({"leaf-00 -> moon": 1e6})


# Running


def test_every_rank_finds_what_launchers_set(two_rails: Lab) -> None:
    result = two_rails.run(words("import json, os", "print(json.dumps(dict(os.environ)))"), rail_per_rank=True)
    assert result.exit_code == 0
    seen = [json.loads(rank.stdout) for rank in result.ranks]
    assert len(seen) == 8  # two GPUs to a host
    for rank, env in enumerate(seen):
        local = rank % 2
        assert env["RANK"] == env["OMPI_COMM_WORLD_RANK"] == env["SLURM_PROCID"] == str(rank)
        assert env["WORLD_SIZE"] == env["OMPI_COMM_WORLD_SIZE"] == env["SLURM_NTASKS"] == "8"
        assert env["LOCAL_RANK"] == env["OMPI_COMM_WORLD_LOCAL_RANK"] == env["SLURM_LOCALID"] == str(local)
        assert env["LOCAL_WORLD_SIZE"] == env["SLURM_NTASKS_PER_NODE"] == "2"
        assert env["GROUP_RANK"] == env["SLURM_NODEID"] == str(rank // 2)
        assert (env["MASTER_ADDR"], env["MASTER_PORT"]) == ("10.1.0.2", "29500")
        assert env["GLOO_SOCKET_IFNAME"] == env["NCCL_SOCKET_IFNAME"] == f"eth{local}"
        assert env["SLURMD_NODENAME"] == env["SYNCLINE_LAB_HOST"] == two_rails.host_names[rank // 2]
    only = two_rails.run(words("import os", "print('RANK' in os.environ, 'SLURM_PROCID' in os.environ)"),
                         ranks_per_host=1, num_ranks=2, launchers=["torch"])  # fmt: skip
    assert [rank.stdout for rank in only.ranks] == ["True False\n"] * 2


def test_the_first_failure_ends_the_rest(flat: Lab) -> None:
    code = (
        "import os, sys, time",
        "rank = int(os.environ['RANK'])",
        "time.sleep(240 if rank != 2 else 0)",
        "sys.exit(7)",
    )
    result = flat.run(words(*code), timeout_s=120)
    assert (result.exit_code, result.exit_status) == (7, 7)
    assert result.first_failure is not None
    assert result.first_failure.rank == 2
    assert [rank.exit_code for rank in result.ranks] == [-15, -15, 7, -15]
    killed = flat.run(words("import os", "os.kill(os.getpid(), 9)"), num_ranks=1)
    assert (killed.exit_code, killed.exit_status) == (-9, 137)


def test_a_run_that_takes_too_long_is_ended(flat: Lab) -> None:
    with pytest.raises(TimeoutError, match="4 of 4 ranks still ran"):
        flat.run(["sleep", "60"], timeout_s=0.3)
    with find_lab(flat.name) as visit:
        assert visit.describe()[1]["processes"] == []


def test_commands_that_cannot_start(flat: Lab) -> None:
    with pytest.raises(LabError, match='cannot start "no-such-program" on host-00'):
        flat.run(["no-such-program"])
    with pytest.raises(LabError, match="a command is a list of words"):
        flat.run("python train.py")  # type: ignore[arg-type]
    with pytest.raises(LabError, match='has no host or switch "host-77"'):
        flat.spawn("host-77", ["true"])
    with pytest.raises(LabError, match='"leaf-00" is a switch'):
        flat.spawn("leaf-00", ["true"])
    with pytest.raises(LabError, match="9 ranks do not fit"):
        flat.run(["true"], num_ranks=9)


def test_an_error_in_the_listener_ends_the_run(flat: Lab) -> None:
    def fail(*_: object) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        flat.run(words("import time", "print(1, flush=True)", "time.sleep(240)"), on_line=fail, timeout_s=120)


# Ending


def test_a_lab_leaves_nothing_and_two_do_not_meet(namespaces: None, mark: str) -> None:
    with Lab(example("flat")) as one, Lab(example("flat")) as two:
        assert {lab.name for lab in running_labs()} >= {one.name, two.name}
        assert one.address("host-00") == two.address("host-00")
        server = one.spawn("host-01", words("import socket", "l = socket.create_server(('', 5002))",
                                            "print('up', flush=True)", "l.accept()"))  # fmt: skip
        wait_for_line(server, "up")
        dial = words("import socket", f"socket.create_connection(('{one.address('host-01')}', 5002), 2)")
        assert two.execute("host-00", dial).exit_code == 1
        assert one.execute("host-00", dial).exit_code == 0
        one.spawn("host-02", ["sh", "-c", "sleep 987654 & sleep 987654"])
        names = {one.name, two.name}
        assert len(set(marked(mark).values())) >= 3  # both labs' own and a host's
    assert marked(mark) == {}
    assert not names & {lab.name for lab in running_labs()}
    with pytest.raises(LabError, match="the lab is not open"):
        one.run(["true"])


_MAKER = """
import os, sys, time
from syncline.fabric import load
from syncline.lab import Lab
with Lab(load(sys.argv[1])) as lab:
    lab.start(["sh", "-c", "setsid sleep 876543 & sleep 876543"])
    if os.fork() == 0:  # somebody who holds on to all open files
        os.execvpe("sleep", ["sleep", "3"], {})
    print(lab.name, flush=True)
    time.sleep(240)
"""


@pytest.mark.parametrize("victim", ["maker", "guard"])
def test_kill_9_removes_everything(namespaces: None, victim: str, mark: str) -> None:
    command = [sys.executable, "-c", _MAKER, str(EXAMPLES / "lab-flat.yaml")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as maker:
        assert maker.stdout is not None
        name = maker.stdout.readline().strip()
        assert name in {lab.name for lab in running_labs()}
        assert len(set(marked(mark).values())) >= 5  # the machine's and four hosts
        if victim == "maker":
            maker.kill()
            assert until(lambda: not marked(mark))
        else:
            children = Path(f"/proc/{maker.pid}/task/{maker.pid}/children").read_text().split()
            os.kill(int(children[0]), signal.SIGKILL)
            assert until(lambda: set(marked(mark)) <= {maker.pid})
        assert until(lambda: name not in {lab.name for lab in running_labs()})
        maker.kill()


def test_a_lab_that_dies_says_so(namespaces: None) -> None:
    with Lab(example("flat"), hosts=2) as lab:
        job = lab.start(["sleep", "240"])
        assert lab._link is not None
        lab._link.guard.kill()
        with pytest.raises(LabError, match="the lab ended while this ran"):
            job.wait(120)
        with pytest.raises(LabError, match="the lab has ended"):
            lab.run(["true"])


# As anybody, or not at all


def test_a_user_namespace_of_its_own(namespaces: None) -> None:
    with Lab(example("two-rails"), scale=0.05, user_namespace=True) as lab:
        assert lab.execute("host-00", ["id", "-u"]).stdout == "0\n"
        assert Transfer(lab, "host-00", "host-01", interface="eth1", size_bytes=1e5).result().size_bytes >= 1e5
        with find_lab(lab.name) as visit:
            from syncline.lab.join import run_inside

            assert run_inside(visit, "host-01", ["hostname"], keep_output=True) == (0, "host-01\n")


# In a mount namespace of its own, so that a clone below a home folder that others cannot enter is seen by anybody.
_AS_NOBODY = """
set -e
mount -t tmpfs -o mode=755 tmpfs /mnt
number=0
for path in "$@"; do number=$((number + 1)); mkdir /mnt/$number; mount --rbind "$path" /mnt/$number; done
exec setpriv --reuid 65534 --regid 65534 --clear-groups "$PYTHON" -c "$CODE"
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_an_ordinary_user(namespaces: None) -> None:
    root, python = Path(__file__).parent.parent.parent, f"/usr/bin/python{sys.version_info[0]}.{sys.version_info[1]}"
    needed("setpriv", "unshare", "mount", python)
    packages = [Path(path) for path in sys.path if path.endswith("site-packages")]
    if not all(path.stat().st_mode & 0o005 == 0o005 for path in (root, root / "src", EXAMPLES, *packages)):
        pytest.skip("the files of the clone or its packages are not readable for others (umask 022 makes them so)")
    code = (
        "import os, sys; from syncline.fabric import load; from syncline.lab import Lab\n"
        "with Lab(load('/mnt/1/examples/lab-leaf-spine.yaml'), scale=0.05, hosts=4) as lab:\n"
        "    print(os.getuid(), lab.execute('host-00', ['hostname']).stdout.strip(), len(lab.paths().links))"
    )
    seen_as = [f"/mnt/{number}" for number, _ in enumerate(packages, 2)]
    env = {
        "PATH": os.environ["PATH"],
        "PYTHON": python,
        "CODE": code,
        "PYTHONPATH": os.pathsep.join(["/mnt/1/src", *seen_as]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = ["unshare", "--mount", "sh", "-c", _AS_NOBODY, "sh", *map(str, (root, *packages))]
    done = subprocess.run(command, env=env, cwd="/", capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "65534 host-00 12\n"


def test_where_there_is_no_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    with pytest.raises(LabError, match="a lab needs Linux; this is Darwin") as caught:
        Lab(example("flat")).open()
    assert "virtual machine" in caught.value.hint


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to take rights away")
def test_where_namespaces_are_forbidden(namespaces: None) -> None:
    needed("setpriv")
    code = (
        "from syncline.fabric import load; from syncline.lab import Lab\n"
        f"Lab(load('{EXAMPLES / 'lab-flat.yaml'}')).open()"
    )
    command = ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all", sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    last = done.stderr[done.stderr.index("LabError") :]
    assert "a lab cannot be built here: unshare(NEWPID|NEWNET|NEWNS|NEWIPC) failed (Operation not permitted)" in last
    assert "--privileged" in last


def test_blueprints_build_too(namespaces: None) -> None:
    with Lab(draft(example("flat"), hosts=2)) as lab:
        assert lab.host_names == ("host-00", "host-01")
        with pytest.raises(LabError, match="already open"):
            lab.open()


def test_output_is_whole_when_a_process_has_ended_though_its_child_holds_the_pipe(flat: Lab) -> None:
    began_s = time.monotonic()
    done = flat.execute(flat.host_names[0], ["sh", "-c", "sleep 60 & seq 1 30000"])
    assert done.stdout.splitlines() == [str(number) for number in range(1, 30001)]
    assert time.monotonic() - began_s < 30


@pytest.mark.slow
def test_torch_all_reduces_over_the_lab(namespaces: None, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    spec = tmp_path / "two-hosts.yaml"  # every rank imports torch for seconds: one a site
    spec.write_text((EXAMPLES / "lab-two-sites.yaml").read_text().replace("hosts: 4", "hosts: 1"))
    code = (
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "values = torch.full((1000,), float(dist.get_rank() + 1))\n"
        "dist.all_reduce(values)\n"
        "print(values.sum().item())\n"
        "dist.destroy_process_group()\n"
    )
    with Lab(load(spec), scale=0.2) as lab:
        with lab.counters() as recording:
            result = lab.run([*PYTHON, code], ranks_per_host=1, timeout_s=240)
        assert result.exit_code == 0, result.first_failure
        assert [rank.stdout for rank in result.ranks] == ["3000.0\n"] * 2
        assert recording.counters.carried_bytes()["east/border -> west/border"] > 1000
