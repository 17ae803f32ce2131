"""The broker and its controller as a whole: replicas, waiting requests, directories, flushes."""

from __future__ import annotations

from collections.abc import Iterator

from dohle.metadata.image import ClusterImage
from dohle.metrics.exposition import Kind, family, labels, single
from dohle.metrics.summary import summary
from dohle.server.broker import BrokerServer
from dohle.server.metrics.partitions import is_at_min_isr, is_under_replicated
from dohle.server.metrics.sources import Sources

_REPLICAS = "kafka_server_replicamanager"
_CONTROLLER = "kafka_controller_kafkacontroller"
#: How long after its timeout an open transaction counts as late.
_LATE_BUFFER_MS = 5 * 60 * 1000


def collect_broker(sources: Sources) -> Iterator[str]:
    """Tell how the node is."""
    yield from single(
        "kafka_server_kafkaserver_brokerstate",
        "gauge",
        "0 not running, 1 starting, 2 recovering logs, 3 running, 6 or 7 shutting down.",
        int(sources.state),
    )
    yield from single(
        "dohle_recovery_seconds",
        "gauge",
        "How long opening and recovering the logs took at the last start.",
        sources.load_seconds,
    )
    if sources.images is not None:
        yield from _controller(sources, sources.images.image)
    broker = sources.broker
    if broker is None:
        return
    yield from _replicas(broker)
    yield from _waiting(broker)
    yield from _directories(sources, broker)
    yield from _flushes(sources)


def _replicas(broker: BrokerServer) -> Iterator[str]:
    total = led = under_replicated = under_min = at_min = offline = reassigning = producers = 0
    late, late_before_ms = 0, _late_before_ms(broker)
    for partition in list(broker.partitions):
        total += 1
        offline += partition.log.disk.failure is not None
        producers += len(partition.log.producer_state.producers)
        if partition.is_led:
            led += 1
            under_replicated += is_under_replicated(partition)
            under_min += partition.is_under_min_isr
            at_min += is_at_min_isr(partition)
            image = partition.image
            reassigning += bool(image.adding_replicas or image.removing_replicas)
            oldest_ms = partition.log.producer_state.oldest_transaction_timestamp
            late += oldest_ms is not None and oldest_ms < late_before_ms
        yield ""
    for name, doc, value in (
        ("partitioncount", "Partitions with a replica here.", total),
        ("leadercount", "Partitions that this broker leads.", led),
        (
            "underreplicatedpartitions",
            "Led partitions with replicas out of sync.",
            under_replicated,
        ),
        ("underminisrpartitioncount", "Led partitions below min.insync.replicas.", under_min),
        ("atminisrpartitioncount", "Led partitions at min.insync.replicas.", at_min),
        ("offlinereplicacount", "Replicas here whose directory has failed.", offline),
        ("reassigningpartitions", "Led partitions that are being reassigned.", reassigning),
        ("produceridcount", "Producers whose sequence numbers are remembered.", producers),
        (
            "partitionswithlatetransactionscount",
            "Led partitions whose oldest transaction is open for longer than any may be.",
            late,
        ),
    ):
        yield from single(f"{_REPLICAS}_{name}", "gauge", doc, value)


def _late_before_ms(broker: BrokerServer) -> int:
    """Return when an open transaction was written to last if it is late now, as in Kafka."""
    allowed_ms = broker.config.get_int("transaction.max.timeout.ms") + _LATE_BUFFER_MS
    return broker.clock.now_ms() - allowed_ms


def _controller(sources: Sources, image: ClusterImage) -> Iterator[str]:
    partitions = offline = imbalanced = 0
    for topic in list(image.topics.values()):
        for partition in topic.partitions.values():
            partitions += 1
            offline += partition.leader < 0
            imbalanced += 0 <= partition.leader != partition.replicas[0]
        yield ""
    brokers = list(image.brokers.values())
    is_active = int(sources.controller is not None and sources.controller.is_active)
    fenced = sum(1 for each in brokers if each.fenced)
    for name, doc, value in (
        ("activecontrollercount", "1 if this node is the active controller.", is_active),
        ("offlinepartitionscount", "Partitions without a leader.", offline),
        (
            "preferredreplicaimbalancecount",
            "Partitions not led by their first replica.",
            imbalanced,
        ),
        ("globaltopiccount", "Topics of the cluster.", len(image.topics)),
        ("globalpartitioncount", "Partitions of the cluster.", partitions),
        ("activebrokercount", "Brokers that serve.", len(brokers) - fenced),
        ("fencedbrokercount", "Brokers that do not serve.", fenced),
        ("lastappliedrecordoffset", "The last metadata record taken in.", image.offset),
    ):
        yield from single(f"{_CONTROLLER}_{name}", "gauge", doc, value)
    yield from single("kafka_brokers", "gauge", "Brokers that serve.", len(brokers) - fenced)
    yield from family(
        "kafka_broker_info",
        "gauge",
        "Where brokers are.",
        [
            (labels({"id": each.id, "address": f"{endpoint.host}:{endpoint.port}"}), 1)
            for each in brokers
            for endpoint in list(each.endpoints.values())[:1]
        ],
    )


def _waiting(broker: BrokerServer) -> Iterator[str]:
    yield from single(
        "kafka_network_requestchannel_requestqueuesize",
        "gauge",
        "Requests, begun or not, that wait for their turn.",
        len(broker.turns),
    )
    produces = sum(partition.replication.waiting_count for partition in broker.commits.waited_for)
    fetches = broker.purgatory.count
    for name, doc in (
        ("purgatorysize", "Delayed requests."),
        ("numdelayedoperations", "Delayed requests with a deadline."),
    ):
        yield from family(
            f"kafka_server_delayedoperationpurgatory_{name}",
            "gauge",
            doc,
            [
                (labels({"delayedOperation": "Fetch"}), fetches),
                (labels({"delayedOperation": "Produce"}), produces),
            ],
        )
    sessions = broker.fetch_sessions
    cache = "kafka_server_fetchsessioncache"
    kind: Kind
    for name, kind, doc, value in (
        ("numincrementalfetchsessions", "gauge", "Fetch sessions.", sessions.session_count),
        (
            "numincrementalfetchpartitionscached",
            "gauge",
            "Partitions in fetch sessions.",
            sessions.partition_count,
        ),
        (
            "incrementalfetchsessionevictions_total",
            "counter",
            "Fetch sessions that had to make room for others.",
            sessions.evictions,
        ),
    ):
        yield from single(f"{cache}_{name}", kind, doc, value)


def _directories(sources: Sources, broker: BrokerServer) -> Iterator[str]:
    offline = broker.logs.offline_directories
    online = [directory.path for directory in broker.logs.online_directories]
    yield from single(
        "kafka_log_logmanager_offlinelogdirectorycount",
        "gauge",
        "Log directories that have failed.",
        len(offline),
    )
    yield from family(
        "kafka_log_logmanager_logdirectoryoffline",
        "gauge",
        "Whether a log directory has failed.",
        [
            *((labels({"logDirectory": path}), 0) for path in online),
            *((labels({"logDirectory": path}), 1) for path in offline),
        ],
    )
    for name, doc, index in (
        ("total", "The size of the disk of a log directory.", 0),
        ("free", "The bytes of that disk that may still be used.", 1),
    ):
        yield from family(
            f"dohle_log_directory_{name}_bytes",
            "gauge",
            doc,
            [(labels({"logDirectory": path}), told[index]) for path, told in sources.disks.items()],
        )


def _flushes(sources: Sources) -> Iterator[str]:
    columns = sources.flushes.columns()
    if columns:
        yield summary(
            "kafka_log_logflushstats_logflushrateandtimems",
            "How long flushing a log to the disk took, in ms.",
            [value * 1000 for value in columns[0]],
            sources.flush_count,
        )
