"""Requests about many keys that different brokers are responsible for: each is asked about its own.

A retriable error concerns only the keys that had it: for these the broker responsible by then is
asked again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from dohle.client.admin.results import Results
from dohle.client.errors import is_retriable
from dohle.client.net.connection import Connection
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId, TopicName

if TYPE_CHECKING:
    from dohle.client.cluster import Cluster

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

#: Returns the broker responsible for each key.
Locate = Callable[[Iterable[_Key]], Awaitable[Mapping[_Key, BrokerId | KafkaError]]]
#: Asks one broker about some keys and returns the result of each.
AskNode = Callable[[Connection, list[_Key]], Awaitable[Mapping[_Key, _Value | KafkaError]]]


async def ask_nodes(
    cluster: Cluster,
    what: str,
    keys: Iterable[_Key],
    locate: Locate[_Key],
    ask: AskNode[_Key, _Value],
    *,
    topics: Iterable[TopicName] = (),
    is_settled: Callable[[KafkaError, int], bool] = lambda error, tries: False,
) -> Results[_Key, _Value]:
    """Ask until each key has a value or a final error.

    ``is_settled`` may decide, after a number of attempts, that a retriable error is final.
    """
    pending = dict.fromkeys(keys)
    done: dict[_Key, _Value] = {}
    errors: dict[_Key, KafkaError] = {}
    tries = 0

    async def attempt() -> None:
        nonlocal tries
        tries += 1
        for key, found in (await _ask_once(cluster, list(pending), locate, ask)).items():
            if not isinstance(found, KafkaError):
                done[key] = found
                errors.pop(key, None)
                del pending[key]
                continue
            errors[key] = found
            if is_settled(found, tries) or not is_retriable(found):
                del pending[key]
        for key in pending:
            raise errors[key]

    try:
        await cluster.retry(what, attempt, topics=topics)
    except KafkaError as error:
        for key in pending:
            errors[key] = error
    return Results(done, errors)


async def _ask_once(
    cluster: Cluster, keys: list[_Key], locate: Locate[_Key], ask: AskNode[_Key, _Value]
) -> dict[_Key, _Value | KafkaError]:
    found: dict[_Key, _Value | KafkaError] = {}
    groups: dict[BrokerId, list[_Key]] = {}
    for key, node_id in (await locate(keys)).items():
        if isinstance(node_id, KafkaError):
            found[key] = node_id
        else:
            groups.setdefault(node_id, []).append(key)

    async def ask_one(node_id: BrokerId, some: list[_Key]) -> Mapping[_Key, _Value | KafkaError]:
        try:
            answers = await ask(await cluster.connection(node_id), some)
        except KafkaError as error:
            return dict.fromkeys(some, error)
        missing = KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"broker {node_id} did not answer for every key"
        )
        return {key: answers.get(key, missing) for key in some}

    for answers in await asyncio.gather(*(ask_one(*group) for group in groups.items())):
        found.update(answers)
    return found
