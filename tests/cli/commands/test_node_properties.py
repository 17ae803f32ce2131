from __future__ import annotations

from pathlib import Path

import pytest

from dohle.cli.commands.node_properties import lay_over, load_config, with_metrics
from dohle.cli.errors import UsageError
from tests.cli.dump.files import Node


def test_without_anything_a_node_listens_on_this_machine_only() -> None:
    assert lay_over({}) == {"log.dirs": "./data", "listeners": "PLAINTEXT://127.0.0.1:9092"}
    config, notices = load_config(lay_over({}))
    assert (config.node_id, config.log_dirs, notices) == (1, ("./data",), [])


def test_what_the_file_says_stays_unless_an_option_says_otherwise() -> None:
    file = {"log.dir": "/old", "listeners": "PLAINTEXT://:1", "num.partitions": "2"}
    assert lay_over(file) == file
    assert lay_over(file, data=["/a", "/b"])["log.dirs"] == "/a,/b"
    assert "log.dir" not in lay_over(file, data=["/a"])
    assert lay_over(file, more={"num.partitions": "3"})["num.partitions"] == "3"


def test_a_listener_takes_the_place_of_those_for_clients_only() -> None:
    file = {
        "listeners": "INSIDE://:1, CTL://:2,OUTSIDE://:3",
        "advertised.listeners": "INSIDE://here:1",
        "inter.broker.listener.name": "INSIDE",
        "controller.listener.names": "ctl",
    }
    found = lay_over(file, listener="127.0.0.1:0")
    assert found["listeners"] == "INSIDE://127.0.0.1:0,CTL://:2"
    assert "advertised.listeners" not in found


def test_the_old_name_of_the_node_id_counts() -> None:
    config, _ = load_config(lay_over({"broker.id": "9"}))
    assert config.node_id == 9
    config, _ = load_config(lay_over({"broker.id": "9"}, node_id=4))
    assert config.node_id == 4


def test_the_directory_names_the_node_if_nobody_else_does(tmp_path: Path) -> None:
    Node(tmp_path, node_id=12).close()
    config, _ = load_config(lay_over({}, data=[str(tmp_path)]))
    assert config.node_id == 12
    config, _ = load_config(lay_over({}, data=[str(tmp_path)], node_id=13))
    assert config.node_id == 13


def test_a_wrong_value_is_a_wrong_command_line() -> None:
    with pytest.raises(UsageError, match=r"num\.partitions"):
        load_config(lay_over({"num.partitions": "none"}))


def test_metrics_are_served_unless_the_properties_say_otherwise() -> None:
    assert with_metrics(lay_over({}))["metrics.listener"] == "127.0.0.1:9644"
    for text in ("0.0.0.0:1234", ""):
        assert with_metrics(lay_over({"metrics.listener": text}))["metrics.listener"] == text
    any_port = lay_over({}, listener="127.0.0.1:0")
    assert with_metrics(any_port)["metrics.listener"] == "127.0.0.1:0"
