"""The command as its users meet it: help, version, exit status, and one clear message for every failure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer

from syncline import __version__
from syncline.cli.shell import app
from syncline.cli.shell.output import JsonOption, emit, examples
from syncline.cli.shell.verbs import BY_HAND, VERBS
from syncline.errors import FabricError

AddVerb = Callable[[Callable[[], object]], None]
ERROR = FabricError("zero hosts.", where="cluster.yaml line 2", hint="Ask for at least 1.")


def syncline(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "syncline", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=240, **options)


@pytest.fixture
def verb(monkeypatch: pytest.MonkeyPatch) -> AddVerb:
    """Return a way to add a verb `probe do`, which calls what it is given."""

    def add(action: Callable[[], object]) -> None:
        module = ModuleType("syncline.cli.probe")
        module.app = typer.Typer(help="Probe the command line.")  # type: ignore[attr-defined]

        @module.app.command(epilog=examples("syncline probe do", "syncline probe do --json"))  # type: ignore[untyped-decorator]
        def do(num: int = 1, json: JsonOption = False) -> None:
            """Do it."""
            action()
            emit({"num": num}, json, [f"did {num} [of 3]"])

        @module.app.command()  # type: ignore[untyped-decorator]
        def other() -> None:
            """Do something else."""

        monkeypatch.setitem(sys.modules, "syncline.cli.probe", module)
        monkeypatch.setitem(VERBS, "probe", "Probe the command line.")
        monkeypatch.setattr(app, "BY_HAND", BY_HAND | {"probe"})

    return add


def fail(error: BaseException) -> Callable[[], None]:
    def action() -> None:
        raise error

    return action


def test_an_answer_is_printed_without_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import syncline; print(len(str(syncline.transfer(size='1GB', rate='100Gbps'))) > 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "True\n", done.stderr[-800:]


def test_help_names_every_verb_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name, line in VERBS.items():
        assert any(shown.split(maxsplit=1) == [name, line] for shown in lines if shown.strip()), name


@pytest.mark.parametrize("name", list(VERBS))
def test_every_verb_and_command_has_a_manual_with_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    group = typer.main.get_command(app.build()).commands[name]  # type: ignore[attr-defined]
    for words in ([], *([command] for command in getattr(group, "commands", {}))):
        assert app.run([name, *words, "--help"]) == 0
        text = capsys.readouterr().out
        if words or not getattr(group, "commands", {}):
            assert "Examples:\n" in text, f"syncline {name} {' '.join(words)} --help has no examples"


@pytest.mark.parametrize("name", list(VERBS))
def test_every_command_speaks_json(name: str) -> None:
    group = typer.main.get_command(app.build()).commands[name]  # type: ignore[attr-defined]
    for command in getattr(group, "commands", {"": group}).values():
        assert any("--json" in parameter.opts for parameter in command.params), f"{name} {command.name}"


def test_no_arguments_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run([]) == 0
    assert capsys.readouterr().out.startswith("Usage: syncline [OPTIONS] COMMAND")


def test_version_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["--version"]) == 0
    assert capsys.readouterr().out == f"syncline {__version__}\n"


def test_a_verb_speaks_text_and_json(verb: AddVerb, capsys: pytest.CaptureFixture[str]) -> None:
    verb(lambda: None)
    assert app.run(["probe", "do", "--num", "2"]) == 0
    assert capsys.readouterr().out == "did 2 [of 3]\n"
    assert app.run(["probe", "do", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"num": 1}


def test_a_verb_without_a_command_shows_its_manual(verb: AddVerb, capsys: pytest.CaptureFixture[str]) -> None:
    verb(lambda: None)
    assert app.run(["probe"]) == 2
    assert "Usage: syncline probe" in capsys.readouterr().err


def test_an_error_is_one_clear_message_and_status_2(verb: AddVerb, capsys: pytest.CaptureFixture[str]) -> None:
    verb(fail(ERROR))
    assert app.run(["probe", "do"]) == 2
    got = capsys.readouterr()
    assert got.out == ""
    assert got.err == "FabricError: cluster.yaml line 2: zero hosts.\n  Ask for at least 1.\n"


def test_an_error_under_json_is_one_object_on_stdout(verb: AddVerb, capsys: pytest.CaptureFixture[str]) -> None:
    verb(fail(ERROR))
    assert app.run(["probe", "do", "--json"]) == 2
    got = capsys.readouterr()
    assert json.loads(got.out) == ERROR.to_json()
    assert got.err == ""


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["nonsense"], "UsageError: No such command 'nonsense'.\n  Try: syncline --help\n"),
        (["prob"], "UsageError: No such command 'prob'. Did you mean 'probe'?\n  Try: syncline --help\n"),
        (["--nonsense"], "UsageError: No such option: --nonsense\n  Try: syncline --help\n"),
        (
            ["probe", "do", "--num", "many"],
            "UsageError: Invalid value for '--num': "
            "must be a whole number, not 'many'.\n  Try: syncline probe do --help\n",
        ),
    ],
)
def test_wrong_arguments_are_one_clear_message_and_status_2(
    verb: AddVerb, capsys: pytest.CaptureFixture[str], arguments: list[str], text: str
) -> None:
    verb(lambda: None)
    assert app.run(arguments) == 2
    assert capsys.readouterr().err == text
    assert app.run([*arguments, "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"] == "UsageError"


def test_json_after_two_dashes_is_an_argument_not_a_wish(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["nonsense", "--", "--json"]) == 2
    assert capsys.readouterr().out == ""


def test_a_bug_says_so_and_shows_where(verb: AddVerb, capsys: pytest.CaptureFixture[str]) -> None:
    verb(fail(KeyError("rail")))
    assert app.run(["probe", "do"]) == 1
    got = capsys.readouterr()
    assert "Traceback" in got.err
    assert f"syncline {__version__} stopped on KeyError: 'rail'\n  This is a bug in syncline" in got.err
    assert app.run(["probe", "do", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"] == "InternalError"


def test_an_interrupt_is_status_130(verb: AddVerb, capsys: pytest.CaptureFixture[str]) -> None:
    verb(fail(KeyboardInterrupt()))
    assert app.run(["probe", "do"]) == 130
    assert capsys.readouterr().err == ""


def test_a_verb_may_choose_its_exit_status(verb: AddVerb) -> None:
    verb(fail(typer.Exit(3)))
    assert app.run(["probe", "do"]) == 3


def test_a_closed_pipe_is_quiet() -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "syncline", "--help"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False, timeout=240)
    os.close(write)
    assert done.stderr == ""
    assert done.returncode == 1


def test_python_m_syncline_is_the_command() -> None:
    done = syncline("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"syncline {__version__}\n", "")


def test_shell_completion_offers_options() -> None:
    asked = {"_SYNCLINE_COMPLETE": "complete_bash", "COMP_WORDS": "syncline --ver", "COMP_CWORD": "1"}
    done = syncline(env=os.environ | asked)
    assert done.stdout.split() == ["--version"]


def test_help_starts_without_heavy_imports() -> None:
    code = (
        "import sys; from syncline.cli.shell.app import run; run(['--help']); "
        "print(sorted({'numpy', 'networkx', 'yaml', 'torch', 'ray'} & sys.modules.keys()), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=240)
    assert done.stderr == "[]\n"


def test_a_terminal_without_our_letters_gets_a_question_mark() -> None:
    done = syncline("fabric", "show", "nöpe", env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    shown = syncline("schedule", "list", env=os.environ | {"PYTHONIOENCODING": "ascii", "COLUMNS": "60"})
    assert (shown.returncode, shown.stderr) == (0, "")


def test_json_is_whole_in_any_encoding(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("name: Müller\nhosts: 1\nhost: 8 x H100\n", "utf-8")
    done = syncline("fabric", "show", str(path), "--json", env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert json.loads(done.stdout)["name"] == "Müller"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_full_disk_is_no_bug_of_ours(more: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "syncline", "schedule", "list", *more]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=240)
    assert (done.returncode, done.stderr) == (
        2, "FileError: cannot write the answer: No space left on device.\n  Make room, then try again.\n"
    )  # fmt: skip


def test_a_missing_extra_is_named(verb: AddVerb, capsys: pytest.CaptureFixture[str]) -> None:
    verb(fail(ModuleNotFoundError("No module named 'torch'", name="torch.distributed")))
    assert app.run(["probe", "do"]) == app.EXIT_USER
    said = capsys.readouterr().err
    assert said == (
        "UsageError: this needs the package torch.distributed, which is not installed.\n"
        '  Install it: pip install "syncline[torch]"\n'
    )


def test_every_extra_that_a_verb_may_miss_is_one_of_the_package() -> None:
    extras = {
        text.split("extra ==")[1].strip(" \"'") for text in metadata.requires("syncline") or () if "extra" in text
    }
    assert set(app.EXTRAS.values()) == extras - {"dev", "docs"}


def test_a_command_that_nobody_listens_to_ends_well() -> None:
    command = (
        f"{sys.executable} -m syncline fabric list >&- 2>&-; exec {sys.executable} -m syncline cost nothing.yaml >&-"
    )
    ended = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert ended.returncode == 2 and ended.stderr.startswith("FileError: there is no file"), ended


def test_a_name_that_no_file_can_have_is_no_bug_of_ours(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["step", "h100-64-rail", "9" * 400]) == 2
    assert capsys.readouterr().err == f'FileError: cannot open "{"9" * 79}…": File name too long.\n  Check the name.\n'


def test_sigterm_while_code_is_made_from_text_ends_as_sigterm_does(tmp_path: Path) -> None:
    """Dataclasses are made so while modules load; Python then died of a SIGINT that nobody had sent."""
    (tmp_path / "loading.py").write_text(
        "import sys\n"
        "from syncline.cli.shell import app\n"
        "text = 'import os, signal; os.kill(os.getpid(), signal.SIGTERM); input()'\n"
        "app.run = lambda arguments: handled()\n"
        "def handled():\n"
        "    try:\n"
        "        exec(text)\n"
        "    except KeyboardInterrupt:\n"
        "        return app.EXIT_INTERRUPTED\n"
        "app.main()\n"
    )
    command = [sys.executable, "-m", "loading"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (143, "")
