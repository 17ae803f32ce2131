from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dohle import __version__
from dohle.cli.main import build_parser, main
from tests.cli.dump.files import SEGMENT, batch, orders, write_segment
from tests.cli.running import at_work


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "dohle", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
    )


def long_log(folder: Path) -> Path:
    """Write a log whose dump is larger than any pipe."""
    return write_segment(folder, *(batch(b"value", base_offset=offset) for offset in range(3000)))


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"dohle {__version__}\n"


def test_python_minus_m_is_the_same_command() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"dohle {__version__}\n", "")


def test_importing_the_command_brings_in_nothing_that_only_some_commands_need() -> None:
    script = (
        "import sys, dohle.cli.main\n"
        "dohle.cli.main.build_parser()\n"
        "print(*sorted(sys.modules), sep='\\n')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert "dohle.cli.main" in loaded
    unwanted = {"rich", "asyncio", "cramjam", "crc32c", "json", "logging", "dataclasses", "uvloop"}
    assert loaded & unwanted == set()
    ours = {name for name in loaded if name.startswith("dohle.") and "dohle.cli" not in name}
    assert ours == set()


def test_dumping_plain_batches_does_not_load_the_protocol(tmp_path: Path) -> None:
    path = write_segment(tmp_path, batch(b"value"))
    script = (
        "import sys; from dohle.cli.main import main\n"
        f"assert main(['log', 'dump', {str(path)!r}]) == 0\n"
        "print(*sorted(sys.modules), sep='\\n')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    loaded = done.stdout.split()
    assert [name for name in loaded if name.startswith(("dohle.protocol", "rich", "asyncio"))] == []


FAMILIES = {
    "topic": ["create", "list", "describe", "alter", "delete"],
    "config": ["describe", "alter"],
    "acl": ["list", "add", "remove"],
    "quota": ["list", "set", "remove"],
    "cluster": ["info"],
    "storage": ["format", "info"],
    "log": ["dump"],
    "pipeline": ["init", "run", "dry-run", "replay"],
}
COMMANDS = [
    ["start"],
    ["produce"],
    ["consume"],
    ["doctor"],
    *([family, member] for family, members in FAMILIES.items() for member in members),
]


@pytest.mark.parametrize("arguments", [[], *COMMANDS], ids=" ".join)
def test_help_ends_well_and_shows_examples(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: {' '.join(['dohle', *arguments])}")
    assert "--help" in shown
    assert "examples:" in shown


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_names_its_members(family: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([family, "--help"]) == 0
    shown = capsys.readouterr().out
    for member in FAMILIES[family]:
        assert f"\n    {member} " in shown


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_the_examples_of_a_command_can_be_parsed(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    main([*arguments, "--help"])
    parser = build_parser()
    shown = [
        shlex.split(
            line.partition("|")[0] if "| jq" in line else line.rpartition("| ")[2], comments=True
        )
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("  ") and " dohle " in f" {line}"
    ]
    examples = [words[: words.index("<")] if "<" in words else words for words in shown]
    examples = [words for words in examples if words[:1] == ["dohle"]]
    assert examples
    for _, *words in examples:
        parser.parse_args(words)


def test_the_help_names_every_option_and_every_kind_of_file(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["log", "dump", "--help"])
    shown = capsys.readouterr().out
    for option in (
        "--records",
        "--print-data-log",
        "--json",
        "--limit",
        "--index-sanity-check",
        "--verify-index-only",
        "--cluster-metadata-decoder",
        "--offsets-decoder",
        "--transaction-log-decoder",
        "--share-group-state-decoder",
        "--remote-log-metadata-decoder",
    ):
        assert option in shown
    for kind in (
        "*.log",
        "*.checkpoint",
        "*.index",
        "*.timeindex",
        "*.txnindex",
        "*.snapshot",
        "leader-epoch-checkpoint",
        "*-offset-checkpoint",
        "meta.properties",
        "partition.metadata",
        "quorum-state",
        ".kafka_cleanshutdown",
    ):
        assert kind in shown
    main(["start", "--help"])
    shown = capsys.readouterr().out
    for option in ("--config", "--data", "--listener", "-X", "--ephemeral", "--request-log"):
        assert option in shown


@pytest.mark.parametrize(
    "arguments",
    [
        ["log"],
        ["log", "dump"],
        ["no-such-command"],
        ["log", "dump", "--no-such-option", "x.log"],
        ["log", "dump", "--limit", "0", "x.log"],
        ["log", "dump", "--limit", "many", "x.log"],
        ["log", "dump", "--offsets-decoder", "--transaction-log-decoder", "x.log"],
        ["log", "dump", "--verify-index-only", "--index-sanity-check", "x.index"],
        ["start", "--node-id", "one"],
        ["start", "--node-id", "-1"],
        ["start", "--node-id", "2147483648"],
        ["start", "-X", "no-equals-sign"],
        ["start", "--ephemeral", "--data", "here"],
        ["start", "--log-level", "loud"],
    ],
)
def test_a_wrong_command_line_ends_with_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "error:" in shown.err


def test_a_missing_file_is_said_to_be_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"{SEGMENT}.log"
    assert main(["log", "dump", str(path)]) == 1
    assert capsys.readouterr() == ("", f"dohle: error: {path}: No such file or directory\n")


def test_a_file_of_no_known_kind_is_refused_with_advice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello")
    assert main(["log", "dump", str(path)]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"dohle: error: {path}: the name does not say what kind of file")
    assert "dohle log dump --help" in shown.err


def test_a_folder_without_known_files_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["log", "dump", str(tmp_path)]) == 1
    assert "no file in this folder is of a known kind" in capsys.readouterr().err


def test_a_file_that_may_not_be_read_is_an_error_and_the_others_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    circle = tmp_path / f"{SEGMENT}.log"
    circle.symlink_to(circle.name)
    good = write_segment(tmp_path, batch(b"value"), name=f"{SEGMENT}.log.deleted")
    assert main(["log", "dump", str(circle), str(good)]) == 1
    shown = capsys.readouterr()
    assert "baseOffset: 0" in shown.out
    assert shown.err == f"dohle: error: {circle}: Too many levels of symbolic links\n"


def test_a_closed_pipe_ends_the_command_without_a_word(tmp_path: Path) -> None:
    path = long_log(tmp_path)
    with at_work("log", "dump", str(path)) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"Dumping")
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == 141


def test_an_interrupt_ends_the_command_without_a_word(tmp_path: Path) -> None:
    path = long_log(tmp_path)
    with at_work("log", "dump", str(path)) as process:
        assert process.stdout is not None
        # Once this has arrived the command is at work, and will wait for its pipe to be read.
        assert os.read(process.stdout.fileno(), 7) == b"Dumping"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert errors == b""
        assert process.returncode == 130


def test_values_that_the_terminal_cannot_show_do_not_end_a_dump(tmp_path: Path) -> None:
    path = write_segment(tmp_path, batch("snö ☃".encode()))
    done = subprocess.run(
        [sys.executable, "-m", "dohle", "log", "dump", "--records", str(path)],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
        timeout=60,
    )
    assert done.returncode == 0
    assert 'value: "snö \\u2603"'.encode("latin-1") in done.stdout


def test_relative_paths_are_shown_as_they_were_given(tmp_path: Path) -> None:
    folder = orders(tmp_path / "data")
    done = run("log", "dump", f"{SEGMENT}.log", "meta.properties", cwd=folder)
    assert done.returncode == 1
    assert done.stdout.startswith(f"Dumping {SEGMENT}.log (log segment, offset 0, 234 bytes)\n")
    assert done.stderr == "dohle: error: meta.properties: No such file or directory\n"
    assert run("log", "dump", ".", cwd=folder).returncode == 0


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "dohle COMMAND --help" in capsys.readouterr().out
    assert main(["topic"]) == 2
    assert "delete topics with all their records" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("topc list", "dohle: error: there is no command topc: did you mean topic?"),
        ("topic crate x", "dohle topic: error: there is no command crate: did you mean create?"),
        ("group qqq", "dohle group: error: there is no command qqq: choose from list, describe"),
    ],
)
def test_a_misspelt_command_is_told_with_the_one_that_is_meant(
    line: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(shlex.split(line)) == 2
    assert told in capsys.readouterr().err


def test_ls_and_rm_stand_for_list_and_delete() -> None:
    parser = build_parser()
    for short, long in [("topic ls", "topic list"), ("group rm billing", "group delete billing")]:
        assert parser.parse_args(shlex.split(short)) == parser.parse_args(shlex.split(long))
