"""Other people's clients and ACLs: refused, allowed, and refused again in the middle.

All come by a listener where nobody says who they are: they are User:ANONYMOUS.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from importlib import import_module
from time import monotonic
from typing import Any

import confluent_kafka
import kafka
import kafka.admin
import kafka.errors
import pytest
from confluent_kafka.cimpl import KafkaError, KafkaException

from dohle.core.acls import AclOperation as Op
from dohle.testing.broker import Broker
from tests.server.guards.authorized import (
    PROPERTIES,
    Right,
    grant,
    make_topic,
    on_cluster,
    on_group,
    on_topic,
    on_transaction,
    revoke,
)

# The module re-exports its classes in a way that a type checker does not follow.
admin_api: Any = import_module("confluent_kafka.admin")

_DEADLINE_S = 30.0


class Guarded:
    """A broker with an authorizer, and its ACLs, from outside its thread."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.bootstrap = broker.bootstrap

    def grant(self, *rights: Right) -> None:
        """Add ACLs."""
        self._run(lambda: grant(self._broker.node, *rights))

    def revoke(self) -> None:
        """Remove all ACLs."""
        self._run(lambda: revoke(self._broker.node))

    def make_topic(self, name: str) -> None:
        """Create a topic."""
        self._run(lambda: make_topic(self._broker.node, name))

    def _run(self, work: Callable[[], Any]) -> None:
        loop = self._broker.node.broker.loop
        asyncio.run_coroutine_threadsafe(work(), loop).result(_DEADLINE_S)


@pytest.fixture
def guarded() -> Iterator[Guarded]:
    """A broker of its own for each test."""
    with Broker(PROPERTIES) as broker:
        found = Guarded(broker)
        found.make_topic("orders")
        yield found


def _delivery_code(producer: confluent_kafka.Producer, topic: str = "orders") -> int | None:
    """Write a record; return the error of its delivery."""
    told: list[KafkaError | None] = []
    producer.produce(topic, b"x", on_delivery=lambda error, _: told.append(error))
    assert producer.flush(_DEADLINE_S) == 0
    (error,) = told
    return None if error is None else error.code()


def test_librdkafka_produces_as_long_as_it_may(guarded: Guarded) -> None:
    guarded.grant(on_topic(Op.DESCRIBE))
    settings = {"bootstrap.servers": guarded.bootstrap, "linger.ms": 0}
    denied = KafkaError.TOPIC_AUTHORIZATION_FAILED
    # One that was refused does not try again for a while.
    assert _delivery_code(confluent_kafka.Producer(settings)) == denied
    guarded.grant(on_topic(Op.WRITE))
    producer = confluent_kafka.Producer(settings)
    for _ in range(5):
        assert _delivery_code(producer) is None
    guarded.grant(on_topic(Op.WRITE)._replace(deny=True))
    assert _delivery_code(producer) == denied


def _next(consumer: confluent_kafka.Consumer, wanted: Callable[[Any], bool]) -> Any:
    """Poll until a message or an error is as wanted."""
    end = monotonic() + _DEADLINE_S
    while monotonic() < end:
        message = consumer.poll(0.2)
        if message is not None and wanted(message):
            return message
    raise AssertionError("nothing of the kind came")


def _has_code(code: int) -> Callable[[Any], bool]:
    return lambda message: message.error() is not None and message.error().code() == code


def test_librdkafka_consumes_as_long_as_it_may(guarded: Guarded) -> None:
    guarded.grant(on_topic(Op.WRITE))
    producer = confluent_kafka.Producer({"bootstrap.servers": guarded.bootstrap})
    assert _delivery_code(producer) is None
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": guarded.bootstrap,
            "group.id": "billing",
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.subscribe(["orders"])
        _next(consumer, _has_code(KafkaError.GROUP_AUTHORIZATION_FAILED))
        guarded.grant(on_group(Op.READ), on_topic(Op.READ))
        message = _next(consumer, lambda message: message.error() is None)
        assert message.value() == b"x"
        consumer.commit(asynchronous=False)
        guarded.grant(on_topic(Op.READ)._replace(deny=True))
        _next(consumer, _has_code(KafkaError.TOPIC_AUTHORIZATION_FAILED))
        with pytest.raises(KafkaException) as refused:
            consumer.commit(message=message, asynchronous=False)
        assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    finally:
        consumer.close()


def test_librdkafka_has_transactions_as_long_as_it_may(guarded: Guarded) -> None:
    settings = {"bootstrap.servers": guarded.bootstrap, "transactional.id": "payments"}
    denied = KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    guarded.grant(on_topic(Op.WRITE))
    refused_producer = confluent_kafka.Producer(settings)
    with pytest.raises(KafkaException) as refused:
        refused_producer.init_transactions(_DEADLINE_S)
    assert refused.value.args[0].code() == denied
    guarded.grant(on_transaction(Op.WRITE))
    producer = confluent_kafka.Producer(settings)
    producer.init_transactions(_DEADLINE_S)
    producer.begin_transaction()
    producer.produce("orders", b"x")
    producer.commit_transaction(_DEADLINE_S)
    producer.begin_transaction()
    producer.produce("orders", b"y")
    assert producer.flush(_DEADLINE_S) == 0
    guarded.grant(on_transaction(Op.WRITE)._replace(deny=True))
    with pytest.raises(KafkaException) as refused:
        producer.commit_transaction(_DEADLINE_S)
    assert refused.value.args[0].code() == denied


def _failure(work: Any) -> int | None:
    """Return the error of what an admin client has asked for."""
    try:
        work.result(_DEADLINE_S)
    except KafkaException as error:
        code: int = error.args[0].code()
        return code
    return None


def test_librdkafka_administers_what_it_may(guarded: Guarded) -> None:
    admin = admin_api.AdminClient({"bootstrap.servers": guarded.bootstrap})
    new = admin_api.NewTopic("new", 1, 1)
    assert _failure(admin.create_topics([new])["new"]) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    acl = admin_api.AclBinding(
        admin_api.ResourceType.TOPIC,
        "new",
        admin_api.ResourcePatternType.LITERAL,
        "User:ANONYMOUS",
        "*",
        admin_api.AclOperation.CREATE,
        admin_api.AclPermissionType.ALLOW,
    )
    anything = admin_api.AclBindingFilter(
        admin_api.ResourceType.ANY,
        None,
        admin_api.ResourcePatternType.ANY,
        None,
        None,
        admin_api.AclOperation.ANY,
        admin_api.AclPermissionType.ANY,
    )
    denied = KafkaError.CLUSTER_AUTHORIZATION_FAILED
    assert _failure(admin.create_acls([acl])[acl]) == denied
    guarded.grant(on_topic(Op.DESCRIBE))
    # (It is told the error, but does not pass it on.)
    assert admin.describe_acls(anything).result(_DEADLINE_S) == []
    guarded.grant(on_cluster(Op.ALTER))
    assert _failure(admin.create_acls([acl])[acl]) is None
    assert acl in admin.describe_acls(anything).result(_DEADLINE_S)
    assert _failure(admin.create_topics([new])["new"]) is None
    only = admin_api.AclBindingFilter(
        admin_api.ResourceType.TOPIC,
        "new",
        admin_api.ResourcePatternType.MATCH,
        None,
        None,
        admin_api.AclOperation.ANY,
        admin_api.AclPermissionType.ANY,
    )
    removed = admin.delete_acls([only])[only].result(_DEADLINE_S)
    assert removed == [acl]
    other = admin_api.NewTopic("newer", 1, 1)
    assert _failure(admin.create_topics([other])["newer"]) == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_kafka_python_produces_and_consumes_as_long_as_it_may(guarded: Guarded) -> None:
    guarded.grant(on_topic(Op.DESCRIBE))
    producer = kafka.KafkaProducer(
        bootstrap_servers=guarded.bootstrap, retries=0, enable_idempotence=False
    )
    try:
        with pytest.raises(kafka.errors.TopicAuthorizationFailedError):
            producer.send("orders", b"x").get(_DEADLINE_S)
        guarded.grant(on_topic(Op.WRITE))
        for _ in range(5):
            producer.send("orders", b"x").get(_DEADLINE_S)
        guarded.grant(on_topic(Op.WRITE)._replace(deny=True))
        with pytest.raises(kafka.errors.TopicAuthorizationFailedError):
            producer.send("orders", b"y").get(_DEADLINE_S)
    finally:
        producer.close()
    settings = {
        "bootstrap_servers": guarded.bootstrap,
        "group_id": "billing",
        "auto_offset_reset": "earliest",
        "consumer_timeout_ms": 20_000,
        "enable_auto_commit": False,
    }
    consumer = kafka.KafkaConsumer("orders", **settings)
    try:
        with pytest.raises(kafka.errors.GroupAuthorizationFailedError):
            next(consumer)
    finally:
        consumer.close()
    guarded.grant(on_group(Op.READ), on_topic(Op.READ))
    consumer = kafka.KafkaConsumer("orders", **settings)
    try:
        assert [next(consumer).value for _ in range(5)] == [b"x"] * 5
        consumer.commit()
        guarded.grant(on_group(Op.READ)._replace(deny=True))
        with pytest.raises(kafka.errors.GroupAuthorizationFailedError):
            consumer.commit()
    finally:
        consumer.close()


def test_kafka_python_administers_what_it_may(guarded: Guarded) -> None:
    guarded.grant(on_cluster(Op.ALTER))
    admin = kafka.admin.KafkaAdminClient(bootstrap_servers=guarded.bootstrap)
    pattern = kafka.admin.ResourcePattern(kafka.admin.ResourceType.TOPIC, "new")
    acl = kafka.admin.ACL(
        principal="User:ANONYMOUS",
        host="*",
        operation=kafka.admin.ACLOperation.CREATE,
        permission_type=kafka.admin.ACLPermissionType.ALLOW,
        resource_pattern=pattern,
    )
    new = kafka.admin.NewTopic("new", 1, 1)
    try:
        with pytest.raises(kafka.errors.TopicAuthorizationFailedError):
            admin.create_topics([new])
        admin.create_acls([acl])
        admin.create_topics([new])
    finally:
        admin.close()
