"""A broker of Apache Kafka beside a controller of dohle, and the other way round (M1)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dohle.cli.main import main
from dohle.testing import Broker
from tests.jvm.apache_kafka import ApacheKafka
from tests.jvm.jvm import Jvm
from tests.ports import free_port

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"


def of_controller(address: str) -> dict[str, str]:
    return {
        "process.roles": "controller",
        "node.id": "1",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@{address}",
        "listeners": f"CONTROLLER://{address}",
    }


def of_broker(address: str, controller: str) -> dict[str, str]:
    return {
        "process.roles": "broker",
        "node.id": "2",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@{controller}",
        "listeners": f"PLAINTEXT://{address}",
    }


def use(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Create a topic, and see who leads it and who is there."""

    def run(*arguments: str) -> str:
        capsys.readouterr()
        assert main(["-b", bootstrap, *arguments]) == 0
        return capsys.readouterr().out

    run("topic", "create", "mixed", "--partitions", "3")
    topic = json.loads(run("topic", "describe", "mixed", "--json"))
    assert {partition["leader"] for partition in topic["partitions"]} == {2}
    (broker,) = map(json.loads, run("cluster", "brokers", "--json").splitlines())
    assert (broker["id"], broker["isFenced"]) == (2, False)
    quorum = json.loads(run("cluster", "quorum", "--json"))
    assert [(one["nodeId"], one["status"]) for one in quorum["replicas"]] == [
        (1, "Leader"),
        (2, "Observer"),
    ]


@pytest.mark.timeout(180)
def test_a_broker_of_kafka_follows_a_controller_of_dohle(
    classpath: str,
    jvm: Jvm,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A10-A13, A30-A45, R120: registered, unfenced, forwarding, and stopped in a controlled way."""
    address, bootstrap = (f"127.0.0.1:{free_port()}" for _ in range(2))
    with Broker(of_controller(address)) as controller:
        kafka = ApacheKafka(classpath, tmp_path, of_broker(bootstrap, address))
        kafka.format(jvm, controller.node.cluster_id)
        with kafka:
            use(bootstrap, capsys)
            kafka.stop()
        assert "The controller has asked us to exit controlled shutdown" in kafka.log
        (registered,) = controller.node.images.image.brokers.values()
        assert registered.fenced


@pytest.mark.timeout(180)
def test_a_broker_of_dohle_follows_a_controller_of_kafka(
    classpath: str,
    jvm: Jvm,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A50-A52, R120-R123: so it reads Kafka's log and speaks to it as Kafka's brokers do."""
    address, bootstrap = (f"127.0.0.1:{free_port()}" for _ in range(2))
    kafka = ApacheKafka(classpath, tmp_path, of_controller(address))
    kafka.format(jvm, CLUSTER)
    file = tmp_path / "broker.properties"
    data = str(tmp_path / "broker")
    properties = of_broker(bootstrap, address)
    lines = (f"{key}={value}\n" for key, value in {**properties, "log.dirs": data}.items())
    file.write_text("".join(lines))
    assert main(["storage", "format", "-c", str(file), "-t", CLUSTER]) == 0
    with kafka, Broker(properties, data=data):
        use(bootstrap, capsys)
