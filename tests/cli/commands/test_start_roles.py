"""The files of a stock Kafka for a controller and a broker on machines of their own."""

from __future__ import annotations

from pathlib import Path

from tests.cli.running import Started, dohle, lines
from tests.ports import free_ports

#: What both files of a Kafka 4.2 that was just unpacked set, from "Socket Server Settings" on.
_COMMON = """\
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
num.partitions=1
num.recovery.threads.per.data.dir=2
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""
CONTROLLER_PROPERTIES = f"""\
process.roles=controller
node.id=1
#controller.quorum.voters=1@localhost:9093
controller.quorum.bootstrap.servers=localhost:9093
listeners=CONTROLLER://:9093
advertised.listeners=CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
#listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
log.dirs=/tmp/kraft-controller-logs
{_COMMON}"""
BROKER_PROPERTIES = f"""\
process.roles=broker
node.id=2
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://localhost:9092
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,\\
  SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
log.dirs=/tmp/kraft-broker-logs
{_COMMON}"""
#: Random, as ``kafka-storage random-uuid`` prints it.
_CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"


def test_the_files_of_a_stock_controller_and_broker_are_taken_as_they_are(tmp_path: Path) -> None:
    """But for ports, which others may have, and directories, which are this test's own."""
    for_clients, for_controllers = free_ports(2)
    properties = {"controller": CONTROLLER_PROPERTIES, "broker": BROKER_PROPERTIES}
    for role, text in properties.items():
        moved = text.replace("9092", str(for_clients)).replace("9093", str(for_controllers))
        (tmp_path / f"{role}.properties").write_text(moved)
    own = {"controller": ["--standalone"], "broker": []}
    for role, options in own.items():
        file, data = ("-c", f"{role}.properties"), ("--data", role)
        done = dohle("storage", "format", *file, "-t", _CLUSTER_ID, *data, *options, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, b"")
    with _started("controller", tmp_path) as controller, _started("broker", tmp_path) as broker:
        assert controller.field("endpoint").endswith(f":{for_controllers}")
        assert broker.bootstrap == f"localhost:{for_clients}"
        sent = lines(range(10))
        assert dohle("-b", broker.bootstrap, "topic", "create", "t").returncode == 0
        assert dohle("-b", broker.bootstrap, "produce", "t", stdin=sent).returncode == 0
        assert dohle("-b", broker.bootstrap, "consume", "t", "-e", "-G", "g").stdout == sent
        told = dohle("-b", broker.bootstrap, "cluster", "quorum").stdout.decode()
        assert f"localhost:{for_controllers}" in told
        assert broker.stop() == 0
        assert controller.stop() == 0
        assert (controller.log, broker.log) == ("", "")


def _started(role: str, folder: Path) -> Started:
    options = ("--config", f"{role}.properties", "--data", role, "--log-level", "warning")
    metrics = ("-X", "metrics.listener=")
    return Started(*options, *metrics, cwd=folder, listener=None, log=f"{role}.log")
