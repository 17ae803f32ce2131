"""A broker of Apache Kafka beside three nodes of dohle."""

from __future__ import annotations

from pathlib import Path

from dohle.testing import Cluster
from tests.jvm.apache_kafka import ApacheKafka
from tests.ports import free_port

KAFKA = 4
#: Quick to notice that a broker is gone.
IMPATIENT = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}


def kafka_beside(cluster: Cluster, classpath: str, folder: Path) -> ApacheKafka:
    """Make one; it is to be formatted and started."""
    voters = cluster.config_file(1).read_text().split("controller.quorum.voters=")[1].split()[0]
    return ApacheKafka(
        classpath,
        folder,
        {
            **IMPATIENT,
            "process.roles": "broker",
            "node.id": str(KAFKA),
            "controller.quorum.voters": voters.replace("\\", ""),
            "listeners": f"PLAINTEXT://127.0.0.1:{free_port()}",
        },
    )
