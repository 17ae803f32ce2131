"""Whom a quota concerns: users, client ids and pairs of them, and which of several counts.

A name is a string, the default is None, and an empty string stands for what an entity does not
have: the quota of a user has no client id. (No name is empty.)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"


class QuotaNumber(NamedTuple):
    """What numbers a quota may have, by the name of their type in Java."""

    type_name: str
    #: The largest whole number; None if fractions are all right.
    largest: int | None = None


_LONG: Final = QuotaNumber("a LONG", 2**63 - 1)
_INT: Final = QuotaNumber("an INT", 2**31 - 1)
_DOUBLE: Final = QuotaNumber("a DOUBLE")
#: What brokers measure of users and client ids.
BROKER_KEYS: Final = {
    PRODUCER_BYTE_RATE: _LONG,
    CONSUMER_BYTE_RATE: _LONG,
    REQUEST_PERCENTAGE: _DOUBLE,
}
#: The quotas of users and client ids that are enforced, and those of addresses.
CLIENT_KEYS: Final = {**BROKER_KEYS, CONTROLLER_MUTATION_RATE: _DOUBLE}
IP_KEYS: Final = {CONNECTION_CREATION_RATE: _INT}

_NONE: Final = ""
_DEFAULT: Final = None


class Entity(NamedTuple):
    """The user and the client id of a quota."""

    user: str | None
    client_id: str | None


class Bucket(NamedTuple):
    """Who is measured together: the connections of a user, of a client id, or of a pair.

    (An address stands where a user does: its quotas have meters of their own.)
    """

    user: str
    client_id: str


class Limit(NamedTuple):
    """The quota that counts, and who shares it."""

    bucket: Bucket
    bound: float


class QuotaTable:
    """The quotas of users and client ids, by key."""

    __slots__ = ("_by_key",)

    def __init__(self) -> None:
        self._by_key: dict[str, dict[Entity, float]] = {}

    def set(self, key: str, entity: Entity, value: float) -> None:
        """Add a quota."""
        self._by_key.setdefault(key, {})[entity] = value

    def __bool__(self) -> bool:
        return bool(self._by_key)

    def find(self, key: str, user: str, client_id: str) -> Limit | None:
        """Return the quota that counts for a connection; None if it is not limited.

        The most specific one does, in Kafka's order. A client without an id has none by its id.
        """
        quotas = self._by_key.get(key)
        if quotas is None:
            return None
        for entity, bucket in _candidates(user, client_id):
            bound = quotas.get(entity)
            if bound is not None:
                return Limit(bucket, bound)
        return None


def _candidates(user: str, client_id: str) -> Iterator[tuple[Entity, Bucket]]:
    pair, of_user = Bucket(user, client_id), Bucket(user, _NONE)
    if client_id:
        yield Entity(user, client_id), pair
        yield Entity(user, _DEFAULT), pair
    yield Entity(user, _NONE), of_user
    if client_id:
        yield Entity(_DEFAULT, client_id), pair
        yield Entity(_DEFAULT, _DEFAULT), pair
    yield Entity(_DEFAULT, _NONE), of_user
    if client_id:
        of_client = Bucket(_NONE, client_id)
        yield Entity(_NONE, client_id), of_client
        yield Entity(_NONE, _DEFAULT), of_client
