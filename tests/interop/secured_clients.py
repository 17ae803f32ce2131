"""Other people's clients that show who they are: each writes a record and reads it back."""

from __future__ import annotations

import asyncio
import gc
import ssl
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import aiokafka
import aiokafka.abc
import confluent_kafka
import kafka
from aiokafka.helpers import create_ssl_context
from kafka.net.sasl.oauth import AbstractTokenProvider

DEADLINE_S = 30.0


class Security(NamedTuple):
    """What a client is told, whoever it is."""

    protocol: str
    #: Files.
    trusted: str | None = None
    own: str | None = None
    mechanism: str | None = None
    user: str = ""
    #: Of OAUTHBEARER: the token.
    password: str = ""


class NotLetIn(Exception):
    """The client or the broker has refused the other."""


class _KafkaPythonTokens(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def token(self) -> str:
        return self._token


class _AioKafkaTokens(aiokafka.abc.AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


def by_librdkafka(bootstrap: str, security: Security, topic: str, value: bytes) -> bytes:
    config: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "security.protocol": security.protocol,
    }
    if security.trusted:
        config["ssl.ca.location"] = security.trusted
    if security.own:
        config["ssl.certificate.location"] = config["ssl.key.location"] = security.own
    if security.mechanism:
        config["sasl.mechanisms"] = security.mechanism
        if security.mechanism == "OAUTHBEARER":
            config["oauth_cb"] = lambda _: (security.password, time.time() + 3600)
        else:
            config["sasl.username"], config["sasl.password"] = security.user, security.password
    # The broker is there: whatever goes wrong is that it or the client refuses the other.
    failures: list[str] = []

    def failed(error: confluent_kafka.KafkaError) -> None:
        failures.append(error.str())

    producer = confluent_kafka.Producer({**config, "error_cb": failed, "logger": _QUIET})
    delivered: list[object] = []
    producer.produce(topic, value, on_delivery=lambda error, _: delivered.append(error))
    for _ in range(int(DEADLINE_S * 10)):
        producer.poll(0.1)
        if failures:
            producer.purge()
            raise NotLetIn(failures[0])
        if delivered:
            break
    assert delivered == [None]
    consumer = confluent_kafka.Consumer({**config, "group.id": topic})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    try:
        message = consumer.poll(DEADLINE_S)
        assert message is not None
        assert message.error() is None
        return bytes(message.value() or b"")
    finally:
        consumer.close()


def by_kafka_python(bootstrap: str, security: Security, topic: str, value: bytes) -> bytes:
    config: dict[str, Any] = {
        "bootstrap_servers": bootstrap,
        "security_protocol": security.protocol,
        "ssl_cafile": security.trusted,
        "ssl_certfile": security.own,
        "ssl_keyfile": security.own,
    }
    if security.mechanism:
        config["sasl_mechanism"] = security.mechanism
        config["sasl_plain_username"] = security.user
        config["sasl_plain_password"] = security.password
        if security.mechanism == "OAUTHBEARER":
            config["sasl_oauth_token_provider"] = _KafkaPythonTokens(security.password)
    refused = ""
    try:
        producer = kafka.KafkaProducer(**config, max_block_ms=DEADLINE_S * 1000)
        producer.send(topic, value).get(timeout=DEADLINE_S)
        producer.close()
    except (kafka.errors.KafkaError, ssl.SSLError) as error:
        refused = str(error) or type(error).__name__
    if refused:
        # It leaves sockets open: they are collected where that is expected.
        gc.collect()
        raise NotLetIn(refused)
    consumer = kafka.KafkaConsumer(**config, consumer_timeout_ms=DEADLINE_S * 1000)
    partition = kafka.TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    found = bytes(next(iter(consumer)).value)
    consumer.close()
    return found


def by_aiokafka(bootstrap: str, security: Security, topic: str, value: bytes) -> bytes:
    config: dict[str, Any] = {
        "bootstrap_servers": bootstrap,
        "security_protocol": security.protocol,
    }
    if security.trusted:
        config["ssl_context"] = create_ssl_context(
            cafile=security.trusted, certfile=security.own, keyfile=security.own
        )
    if security.mechanism:
        config["sasl_mechanism"] = security.mechanism
        config["sasl_plain_username"] = security.user
        config["sasl_plain_password"] = security.password
        if security.mechanism == "OAUTHBEARER":
            config["sasl_oauth_token_provider"] = _AioKafkaTokens(security.password)

    async def go() -> bytes:
        producer = aiokafka.AIOKafkaProducer(**config)
        try:
            await producer.start()
            await producer.send_and_wait(topic, value)
        except aiokafka.errors.KafkaError as error:
            raise NotLetIn(str(error)) from None
        finally:
            await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(**config)
        await consumer.start()
        try:
            partition = aiokafka.TopicPartition(topic, 0)
            consumer.assign([partition])
            consumer.seek(partition, 0)
            return bytes((await consumer.getone()).value)
        finally:
            await consumer.stop()

    async def in_time() -> bytes:
        async with asyncio.timeout(2 * DEADLINE_S):
            return await go()

    return asyncio.run(in_time())


Client = Callable[[str, Security, str, bytes], bytes]

CLIENTS: dict[str, Client] = {
    "librdkafka": by_librdkafka,
    "kafka-python": by_kafka_python,
    "aiokafka": by_aiokafka,
}


#: Those that close what they have opened, also where they are not let in.
TIDY = {name: client for name, client in CLIENTS.items() if name != "kafka-python"}


class _Quiet:
    """Takes what librdkafka has to say about failures that are expected."""

    def log(self, *_: object) -> None:
        pass


_QUIET = _Quiet()
