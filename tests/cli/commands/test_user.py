"""Commands about users, and commands that log in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dohle.cli.main import main
from dohle.testing.broker import Broker
from tests.security.authority import Authority, key_store, trust_store
from tests.server.security.secured import sasl_client, sasl_listener


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Iterator[Broker]:
    stores = {**key_store(authority.issue()), **trust_store(authority)}
    with Broker({**sasl_listener("SASL_SSL"), **stores}) as running:
        yield running


@pytest.fixture(scope="module")
def config(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("config") / "client.properties"
    texts = {**sasl_client("PLAIN", "admin", protocol="SASL_SSL"), **trust_store(authority)}
    path.write_text("".join(f"{name}={text}\n" for name, text in texts.items()))
    return str(path)


def test_a_user_is_set_listed_logs_in_and_is_removed(
    broker: Broker,
    authority: Authority,
    config: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    there = ["-b", broker.bootstrap, "--command-config", config]
    monkeypatch.setenv("DOHLE_USER_PASSWORD", "dora-secret")
    assert main([*there, "user", "set", "dora"]) == 0
    assert main([*there, "user", "list", "--json"]) == 0
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert shown == [{"user": "dora", "mechanism": "SCRAM-SHA-512", "iterations": 4096}]
    monkeypatch.setenv("DOHLE_PASSWORD", "dora-secret")
    as_dora = ["-b", broker.bootstrap, "--tls", authority.path, "--sasl", "SCRAM-SHA-512:dora"]
    assert main([*as_dora, "topic", "list"]) == 0
    assert main([*there, "user", "remove", "dora"]) == 0
    assert main([*as_dora, "topic", "list"]) == 1
    told = capsys.readouterr().err
    assert "does not let this client in" in told
    assert "dora-secret" not in told


def test_an_unknown_user_is_an_error(
    broker: Broker, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    there = ["-b", broker.bootstrap, "--command-config", config]
    assert main([*there, "user", "list", "nobody"]) == 1
    assert main([*there, "user", "remove", "nobody"]) == 1
    assert "does not exist" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    [
        "SCRAM-SHA-256",
        "SCRAM-SHA-1=[name=a,password=very-secret]",
        "SCRAM-SHA-256=[password=very-secret]",
        "SCRAM-SHA-256=[name=a]",
        "SCRAM-SHA-256=[name=a,password=very-secret,iterations=1]",
        "SCRAM-SHA-256=[name=a,password=very-secret,saltedpassword=YQ==]",
        "SCRAM-SHA-256=[name=a,saltedpassword=YQ==]",
        "SCRAM-SHA-256=[name=a,sold=very-secret]",
    ],
)
def test_what_is_no_user_is_refused_without_showing_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    code = main(["storage", "format", "--data", str(tmp_path / "data"), "--add-scram", text])
    assert code == 2
    assert "very-secret" not in capsys.readouterr().err


def test_nobody_else_can_read_the_files_of_a_directory_with_users(tmp_path: Path) -> None:
    """Section 8: "`__cluster_metadata` holds SCRAM keys …, so files are 0600 and snapshots too"."""
    data = tmp_path / "data"
    user = "SCRAM-SHA-256=[name=a,password=very-secret]"
    assert main(["storage", "format", "--data", str(data), "--add-scram", user]) == 0
    with Broker(data=data):
        pass
    modes = {path.name: path.stat().st_mode & 0o777 for path in data.rglob("*") if path.is_file()}
    assert {"bootstrap.checkpoint", "00000000000000000000.log"} <= modes.keys()
    assert set(modes.values()) == {0o600}
