"""``dohle start --secure``: from nothing to TLS, a password and rights, in one command."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dohle.cli.development_certificates import DevelopmentAuthority
from dohle.cli.main import main
from tests.cli.running import Started, dohle


def shell(commands: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run lines as a person would, in a terminal."""
    command = f'dohle() {{ "{sys.executable}" -m dohle "$@"; }}\nset -e\n{commands}'
    return subprocess.run(
        ["bash", "-c", command],
        cwd=cwd,
        env={**os.environ, **more},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_what_it_prints_works_and_nobody_else_is_let_in(tmp_path: Path) -> None:
    with Started("--secure", cwd=tmp_path) as started:
        printed = "".join(started.shown)
        commands = "\n".join(re.findall(r"^  (.*)$", printed, re.MULTILINE))
        done = shell(commands, tmp_path, DOHLE_USER_PASSWORD="alice-secret")
        assert done.returncode == 0, done.stderr
        assert "hello" in done.stdout
        alice = ["-b", started.bootstrap, "--tls", "data/ca.pem", "--sasl", "SCRAM-SHA-512:alice"]
        produce = " ".join(["dohle", *alice, "produce"])
        may = shell(f"echo hi | {produce} greetings", tmp_path, DOHLE_PASSWORD="alice-secret")
        assert may.returncode == 0, may.stderr
        may_not = shell(f"echo hi | {produce} others", tmp_path, DOHLE_PASSWORD="alice-secret")
        assert "TOPIC_AUTHORIZATION_FAILED" in may_not.stderr
        plain = dohle("-b", started.bootstrap, "topic", "list", cwd=tmp_path)
        assert plain.returncode == 1
        started.stop()
    made = {path.name: path.read_bytes() for path in (tmp_path / "data").glob("*.p*m")}
    properties = (tmp_path / "data" / "admin.properties").read_bytes()
    password = re.search(rb'password\\="([^"]+)"', properties)
    assert password is not None
    assert password[1].decode() not in started.log + printed
    for name in ("admin.properties", "ca.key", "node.pem"):
        assert (tmp_path / "data" / name).stat().st_mode & 0o077 == 0
    with Started("--secure", cwd=tmp_path) as again:
        listed = dohle(
            *("-b", again.bootstrap, "--command-config", "data/admin.properties", "user", "list"),
            cwd=tmp_path,
        )
        assert b"alice" in listed.stdout
    assert {path.name: path.read_bytes() for path in (tmp_path / "data").glob("*.p*m")} == made


def test_a_certificate_is_signed_anew_for_another_host_and_by_the_same_authority(
    tmp_path: Path,
) -> None:
    first = DevelopmentAuthority(tmp_path)
    path = first.issue("node.pem", "dohle", ["localhost", "127.0.0.1"])
    before = path.read_text()
    again = DevelopmentAuthority(tmp_path)
    assert again.issue("node.pem", "dohle", ["127.0.0.1"]).read_text() == before
    other = again.issue("node.pem", "dohle", ["kafka.example.org"]).read_text()
    assert other != before
    shown = ["openssl", "verify", "-CAfile", str(tmp_path / "ca.pem"), str(path)]
    assert subprocess.run(shown, capture_output=True, timeout=30).returncode == 0


def test_half_an_authority_is_told_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ca.pem").write_text("")
    assert main(["start", "--secure", "--data", str(tmp_path)]) == 1
    assert "ca.key" in capsys.readouterr().err


def test_without_cryptography_it_says_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    assert main(["start", "--secure", "--data", str(tmp_path)]) == 1
    assert "pip install 'dohle[tls]'" in capsys.readouterr().err


@pytest.mark.parametrize("other", [["--config", "server.properties"], ["--nodes", "3"]])
def test_it_does_not_go_with_what_has_listeners_of_its_own(
    other: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("server.properties").write_text("")
    assert main(["start", "--secure", *other]) == 2
