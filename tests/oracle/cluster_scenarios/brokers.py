"""Brokers that come and go: registration, heartbeats, producer ids, directories."""

from __future__ import annotations

from typing import Any

from tests.oracle.bodies import versions_of
from tests.oracle.cluster_scenarios._nodes import (
    ACTIVE,
    STANDBY,
    Broker,
    delete,
    features,
    leaders_become,
    listener,
    live_broker,
    placed_topic,
)
from tests.oracle.scenario import Client, Run

#: What a broker says of its end when it registers anew.
_RETURNS = ("clean", "unclean", "wrong")
_RESERVED_DIRECTORY = bytes(15) + b"\x07"


async def registration(run: Run) -> None:
    """BrokerRegistration: each check by itself, then the same broker again and again (A30)."""
    active = await run.client(at=ACTIVE)
    other = await live_broker(run, 10)
    for version in versions_of("BrokerRegistration"):
        broker = Broker(active, 11 + version)
        own = broker.directories
        refusals: list[tuple[str, dict[str, Any]]] = [
            ("another cluster", {"cluster_id": "another"}),
            ("no cluster", {"cluster_id": ""}),
            ("migrates", {"is_migrating_zk_broker": version >= 1}),
            ("no directories", {"log_dirs": []}),
            ("reserved directory", {"log_dirs": [*own, _RESERVED_DIRECTORY]}),
            ("directory twice", {"log_dirs": [*own, *own]}),
            ("directory of another", {"log_dirs": [*own, *other.directories]}),
            ("no features", {"features": []}),
            ("without metadata.version", {"features": features(metadata_version=None)}),
            ("metadata.version too old", {"features": features(metadata_version=(7, 20))}),
            ("metadata.version too new", {"features": features(metadata_version=(30, 31))}),
            ("without transaction.version", {"features": features(transaction_version=None)}),
            ("without kraft.version", {"features": features(kraft_version=None)}),
            ("group.version too old", {"features": features(group_version=(0, 0))}),
            ("two faults", {"cluster_id": "another", "log_dirs": []}),
            ("id of a live one", {"broker_id": other.id, "log_dirs": other.directories}),
            ("id of a real one", {"broker_id": 1}),
        ]
        for note, changed in refusals:
            await active.send(
                "BrokerRegistration", version, note=note, **broker.registration(**changed)
            )
        await broker.register(version, "new")
        await broker.register(version, "same incarnation", listeners=[listener("OTHER")])
        await broker.register(version, "another incarnation", incarnation_id=b"incarnation 0002")
        await broker.register(
            version,
            note="odd features",
            incarnation_id=b"incarnation 0002",
            features=features(no_such_feature=(1, 5)),
        )
        await broker.heartbeat(note=f"after v{version}")
        await broker.register(version, "session lasts")
        await broker.register(version, "session lasts, same", incarnation_id=b"incarnation 0002")
        standby = await run.client(at=STANDBY)
        body = broker.registration()
        await standby.send("BrokerRegistration", version, note="new", **body)
        await active.send("UnregisterBroker", 0, note=f"after v{version}", broker_id=broker.id)
        await active.send("UnregisterBroker", 0, note=f"again v{version}", broker_id=broker.id)
    await other.go()


async def heartbeats(run: Run) -> None:
    """BrokerHeartbeat: from fenced to unfenced, and back (A41)."""
    active, standby = await run.client(at=ACTIVE), await run.client(at=STANDBY)
    for version in versions_of("BrokerHeartbeat"):
        broker = Broker(active, 20 + version)
        await broker.heartbeat(version, "unknown")
        await broker.heartbeat(version, "unknown, with an epoch", broker_epoch=3)
        await broker.register(note=f"for v{version}")
        await broker.heartbeat(version, "older epoch", broker_epoch=broker.epoch - 1)
        await broker.heartbeat(version, "newer epoch", broker_epoch=broker.epoch + 1)
        await broker.heartbeat(version, "behind", current_metadata_offset=0)
        await broker.heartbeat(
            version, "just behind", current_metadata_offset=broker.epoch - 1, want_fence=True
        )
        await broker.heartbeat(
            version, "just there", current_metadata_offset=broker.epoch, want_fence=True
        )
        await broker.heartbeat(version, "wants to stay fenced", want_fence=True)
        await broker.heartbeat(version, "unfenced")
        await broker.heartbeat(version, "unfenced, behind", current_metadata_offset=0)
        await broker.heartbeat(version, "fenced again", want_fence=True)
        await broker.heartbeat(version, "unfenced again")
        await broker.heartbeat(version, "fence and stop", want_fence=True, want_shut_down=True)
        await broker.heartbeat(version, "unfenced after that")
        await broker.heartbeat(version, "stops", want_shut_down=True)
        await broker.heartbeat(version, "stops, fenced", want_shut_down=True)
        await broker.heartbeat(
            version, "stops, behind", want_shut_down=True, current_metadata_offset=0
        )
        body = {**broker.who, "current_metadata_offset": 0}
        await standby.send("BrokerHeartbeat", version, **body)
        await broker.go()


async def controlled_shutdown(run: Run) -> None:
    """A broker that leads wants to stop: others lead first (A42)."""
    for version in versions_of("BrokerHeartbeat"):
        broker = await live_broker(run, 24)
        broker.controller = await run.client(at=ACTIVE)
        topic = await placed_topic(run, f"topic-{version}", [24, 1], [1, 24])
        alone = await placed_topic(run, f"topic-{version}-alone", [24])
        # Nobody may stop before it has read on, whenever the real ones tell how far they are.
        slow = await live_broker(run, 19)
        await slow.controller.ask("BrokerHeartbeat", 1, **slow.who, current_metadata_offset=0)
        await broker.heartbeat(version, "leads", want_shut_down=True)
        await leaders_become(run, [1, 1, -1], f"v{version}: stopping", topic, alone)
        await broker.heartbeat(version, "changed its mind")
        await slow.go()
        await broker.controller.until(
            *("BrokerHeartbeat", version, lambda r: r.should_shut_down),
            note="may stop",
            **broker.who,
            current_metadata_offset=1 << 30,
            want_shut_down=True,
        )
        await leaders_become(run, [1, 1, -1], f"v{version}: stopped", topic, alone)
        await broker.register(
            note=f"v{version}: clean",
            incarnation_id=b"incarnation 0002",
            previous_broker_epoch=broker.epoch,
        )
        await broker.heartbeat(version, "is back")
        await leaders_become(run, [1, 1, 24], f"v{version}: back", topic, alone)
        await delete(run, topic, alone)
        await broker.go()


async def silence(run: Run) -> None:
    """Brokers that are not heard of any more are fenced, and return, cleanly or not (A34, U2)."""
    brokers = {note: await live_broker(run, 25 + n) for n, note in enumerate(_RETURNS)}
    topics = {
        note: (
            await placed_topic(run, f"topic-{note}", [broker.id, 1], [1, broker.id]),
            await placed_topic(run, f"topic-{note}-alone", [broker.id]),
        )
        for note, broker in brokers.items()
    }
    for note, broker in brokers.items():
        broker.controller = await run.client(at=ACTIVE)
        await leaders_become(run, [1, 1, -1], f"{note}: fenced", *topics[note])
    for note, broker in brokers.items():
        await broker.register(
            note=note,
            incarnation_id=b"incarnation 0002",
            previous_broker_epoch=-1 if note == "unclean" else broker.epoch - (note == "wrong"),
        )
        await broker.heartbeat(note=f"{note}, still fenced", want_fence=True)
        await leaders_become(run, [1, 1, -1], f"{note}: registered", *topics[note])
        await broker.heartbeat(note=note)
        await leaders_become(run, [1, 1, broker.id], f"{note}: unfenced", *topics[note])
        await delete(run, *topics[note])
        await broker.go()


async def offline_directories(run: Run) -> None:
    """A directory fails: its replicas leave (D1), and AssignReplicasToDirs says where they are."""
    active, standby = await run.client(at=ACTIVE), await run.client(at=STANDBY)
    first, second = b"first directory!", b"second directory"
    broker = await live_broker(run, 28, directories=[first, second])
    broker.controller = active
    topic = await placed_topic(run, "topic", [28, 1], [28, 1], [1, 28], [1, 2])
    alone = await placed_topic(run, "topic-alone", [28])

    async def assign(
        note: str,
        directory: bytes,
        *partitions: int,
        topic_id: bytes = topic.id,
        client: Client = active,
        **more: Any,
    ) -> None:
        parts = [{"partition_index": each} for each in partitions]
        topics = [{"topic_id": topic_id, "partitions": parts}]
        body = {**broker.who, "directories": [{"id": directory, "topics": topics}], **more}
        await client.send("AssignReplicasToDirs", 0, note=note, **body)

    await assign("first", first, 0, 2)
    await assign("first alone", first, 0, topic_id=alone.id)
    await assign("second", second, 1)
    await assign("same again", second, 1)
    await assign("unknown partition", first, 9)
    await assign("unknown topic", first, 0, topic_id=b"no such topic id")
    await assign("no replica", first, 3)
    await assign("stale epoch", first, 0, broker_epoch=broker.epoch - 1)
    await assign("unknown broker", first, 0, broker_id=99)
    await assign("some of them", first, 0, 3, 9)
    await assign("nothing", first)
    await assign("standby", first, 0, client=standby)
    await active.send(
        "AssignReplicasToDirs", 0, note="no directories", **broker.who, directories=[]
    )
    await broker.heartbeat(note="unknown directory", offline_log_dirs=[b"unknown director"])
    await broker.heartbeat(note="first fails", offline_log_dirs=[first])
    await leaders_become(run, [1, 28, 1, 1, -1], "first fails", topic, alone)
    await broker.heartbeat(note="first fails, again", offline_log_dirs=[first])
    await assign("to a failed one", first, 1)
    await leaders_become(run, [1, 1, 1, 1, -1], "moved to a failed one", topic, alone)
    await delete(run, topic, alone)
    await broker.go()


async def producer_ids(run: Run) -> None:
    """AllocateProducerIds: blocks, one behind the other."""
    active, standby = await run.client(at=ACTIVE), await run.client(at=STANDBY)
    broker = await live_broker(run, 29)
    for note, changed in (
        ("first", {}),
        ("second", {}),
        ("older epoch", {"broker_epoch": broker.epoch - 1}),
        ("newer epoch", {"broker_epoch": broker.epoch + 1}),
        ("no epoch", {"broker_epoch": -1}),
        ("unknown broker", {"broker_id": 99}),
        ("another broker", {"broker_id": 1}),
    ):
        await active.send("AllocateProducerIds", 0, note=note, **{**broker.who, **changed})
    await standby.send("AllocateProducerIds", 0, note="standby", **broker.who)
    await broker.heartbeat(note="fenced", want_fence=True)
    await active.send("AllocateProducerIds", 0, note="fenced", **broker.who)
    await broker.go()


async def unregistering(run: Run) -> None:
    """UnregisterBroker: its replicas stay, and nobody leads them."""
    broker = await live_broker(run, 30)
    topic = await placed_topic(run, "topic", [30, 1], [1, 30])
    alone = await placed_topic(run, "topic-alone", [30])
    for at in ("broker 1", "broker 2", STANDBY, ACTIVE):
        client = await run.client(at=at)
        for note, broker_id in (("unknown", 99), ("negative", -1)):
            await client.send("UnregisterBroker", 0, note=note, broker_id=broker_id)
    await (await run.client(at=STANDBY)).send("UnregisterBroker", 0, note="live", broker_id=30)
    await (await run.client(at="broker 2")).send("UnregisterBroker", 0, note="live", broker_id=30)
    await leaders_become(run, [1, 1, -1], "gone", topic, alone)
    active = await run.client(at=ACTIVE)
    broker.controller = active
    await broker.heartbeat(note="gone")
    await active.send("AllocateProducerIds", 0, note="gone", **broker.who)
    await broker.register(note="anew")
    await broker.heartbeat(note="anew")
    await leaders_become(run, [1, 1, 30], "anew", topic, alone)
    await delete(run, topic, alone)
    await broker.go()


async def controllers(run: Run) -> None:
    """ControllerRegistration: taken as it comes; the real one soon registers again (A15)."""
    active, standby = await run.client(at=ACTIVE), await run.client(at=STANDBY)
    for note, changed in (
        ("another incarnation", {}),
        ("again", {}),
        ("yet another", {"incarnation_id": b"incarnation 0002"}),
        ("no listeners", {"listeners": []}),
        ("no features", {"features": []}),
    ):
        body: dict[str, Any] = {
            "controller_id": 3,
            "incarnation_id": b"incarnation 0001",
            "listeners": [listener("CONTROLLER")],
            "features": features(),
        }
        await active.send("ControllerRegistration", 0, note=note, **{**body, **changed})
    await standby.send("ControllerRegistration", 0, **body)
    for client in (active, standby):
        await client.until(
            *("DescribeCluster", 2, lambda r: [each.port for each in r.brokers].count(9) == 0),
            note="the real one is back",
            endpoint_type=2,
        )
