"""Commands that talk to a cluster: one loop, one client, and failures as one line.

The first connection is attempted once: a person who mistyped an address should not have to wait for
retries. After that the client retries as usual.
"""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from dohle.cli.admin_parts import whole
from dohle.cli.client_security import client_security
from dohle.cli.errors import CliError, UsageError, report_error, report_note, report_warning

if TYPE_CHECKING:
    from dohle.client import Admin, Cluster, Results
    from dohle.client.admin.requests import AdminRequests
    from dohle.client.admin.topics import TopicAdmin
    from dohle.core.errors import KafkaError
    from dohle.core.ids import TopicPartition

API_TIMEOUT_MS = 30_000

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
_Part = TypeVar("_Part", bound="AdminRequests")


def with_cluster(args: argparse.Namespace, work: Callable[[Cluster], Awaitable[int]]) -> int:
    """Connect to the cluster of ``-b``, run the work and return its exit code."""
    from dohle.client import ClientConfig, Cluster, ConnectionClosed, run
    from dohle.core.errors import KafkaError

    async def session() -> int:
        config = ClientConfig(
            client_id="dohle-cli", api_timeout_ms=API_TIMEOUT_MS, security=client_security(args)
        )
        try:
            cluster = Cluster(args.bootstrap, config)
        except ValueError as error:
            raise UsageError(f"-b {args.bootstrap}: {error}") from None
        cluster.on_wait = report_note
        async with cluster:
            try:
                await cluster.refresh(())
            except ConnectionClosed as error:
                raise CliError(
                    f"{error.args[0]}; start a broker with `dohle start`, or pass the address of "
                    "one with -b"
                ) from None
            return await work(cluster)

    try:
        with _client_log_shown():
            return run(session())
    except KafkaError as error:
        raise CliError(describe_kafka_error(error)) from None


@contextmanager
def _client_log_shown() -> Iterator[None]:
    """Show what the client warns of: that no broker can be reached any more, and that one can."""
    import logging

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            report_warning(record.getMessage())

    logger = logging.getLogger("dohle.client")
    handler = Handler(logging.WARNING)
    propagate, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate


def with_admin(
    args: argparse.Namespace, work: Callable[[argparse.Namespace, Admin], Awaitable[int]]
) -> int:
    """Run work with an admin client for the cluster of ``-b``, and return its exit code."""
    return with_part(args, whole, work)


def with_part(
    args: argparse.Namespace,
    part: Callable[[], type[_Part]],
    work: Callable[[argparse.Namespace, _Part], Awaitable[int]],
) -> int:
    """Do the same with a part of the admin client, which loads quicker than all of it."""
    return with_cluster(args, lambda cluster: work(args, part()(cluster)))


def no_such_topic(name: str) -> str:
    """Return the error for a missing topic."""
    return f"there is no topic {name}; `dohle topic list` shows all"


async def find_partitions(
    admin: TopicAdmin, name: str, numbers: Iterable[int] | None
) -> list[TopicPartition]:
    """Return partitions of a topic, all if no numbers are given; raise for missing ones."""
    from dohle.core.errors import ErrorCode
    from dohle.core.ids import TopicPartition

    results = await admin.describe_topics([name])
    for error in results.errors.values():
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise CliError(no_such_topic(name))
        raise error
    topic = results.one()
    wanted = sorted(topic.partitions) if numbers is None else tuple(numbers)
    for number in wanted:
        if number not in topic.partitions:
            raise CliError(
                f"{name} has {len(topic.partitions)} partitions, from 0 on, and no {number}"
            )
    return [TopicPartition(topic.name, number) for number in dict.fromkeys(wanted)]


def describe_kafka_error(error: KafkaError) -> str:
    """Return what went wrong, and Kafka's name for the error."""
    return f"{error.args[0]} ({error.code.name})"


def report_failures(results: Results[_Key, _Value]) -> Mapping[_Key, _Value]:
    """Report failures, one line each, and return what succeeded."""
    for error in results.errors.values():
        report_error(describe_kafka_error(error))
    return results.done


def exit_code(results: Results[_Key, _Value]) -> int:
    """Return 1 if anything failed."""
    return 1 if results.errors else 0
