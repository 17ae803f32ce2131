"""Requests about many keys that different brokers are responsible for: each is asked about its own.

A retriable error concerns only the keys that had it: for these the broker responsible by then is
asked again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from dohle.client.admin.results import Results
from dohle.client.errors import ConnectionClosed, is_retriable
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
    on_error: Callable[[_Key, KafkaError], None] = lambda key, error: None,
    timeout_ms: int | None = None,
    patience_ms: int | None = None,
) -> Results[_Key, _Value]:
    """Ask until each key has a value or a final error.

    ``is_settled`` may decide, after a number of attempts, that a retriable error is final.
    ``on_error`` is told every error of a key, also that its broker cannot be reached. A broker that
    does not answer within ``patience_ms`` counts as disconnected.
    """
    pending = dict.fromkeys(keys)
    done: dict[_Key, _Value] = {}
    errors: dict[_Key, KafkaError] = {}
    tries = 0

    async def attempt() -> None:
        nonlocal tries
        tries += 1
        for key, found in (
            await _ask_once(cluster, list(pending), locate, ask, patience_ms)
        ).items():
            if not isinstance(found, KafkaError):
                done[key] = found
                errors.pop(key, None)
                del pending[key]
                continue
            errors[key] = found
            on_error(key, found)
            if is_settled(found, tries) or not is_retriable(found):
                del pending[key]
        left = [errors[key] for key in pending]
        if left:
            # An error that means stale metadata has it refreshed.
            raise next((each for each in left if each.code.refreshes_metadata), left[0])

    try:
        await cluster.retry(what, attempt, topics=topics, timeout_ms=timeout_ms)
    except KafkaError as error:
        for key in pending:
            errors[key] = error
    return Results(done, errors)


async def _ask_once(
    cluster: Cluster,
    keys: list[_Key],
    locate: Locate[_Key],
    ask: AskNode[_Key, _Value],
    patience_ms: int | None,
) -> dict[_Key, _Value | KafkaError]:
    patience_s = None if patience_ms is None else patience_ms / 1000
    found: dict[_Key, _Value | KafkaError] = {}
    groups: dict[BrokerId, list[_Key]] = {}
    for key, node_id in (await locate(keys)).items():
        if isinstance(node_id, KafkaError):
            found[key] = node_id
        else:
            groups.setdefault(node_id, []).append(key)

    async def ask_one(node_id: BrokerId, some: list[_Key]) -> Mapping[_Key, _Value | KafkaError]:
        try:
            async with asyncio.timeout(patience_s):
                answers = await ask(await cluster.connection(node_id), some)
        except TimeoutError:
            text = f"broker {node_id} did not answer within {patience_s:g} s"
            return dict.fromkeys(some, ConnectionClosed(text))
        except KafkaError as error:
            return dict.fromkeys(some, error)
        missing = KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"broker {node_id} did not answer for every key"
        )
        return {key: answers.get(key, missing) for key in some}

    for answers in await asyncio.gather(*(ask_one(*group) for group in groups.items())):
        found.update(answers)
    return found
