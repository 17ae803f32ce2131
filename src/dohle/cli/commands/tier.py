"""``dohle tier``: what is in the remote tier, and whether that is all there."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from dohle.cli.errors import CliError, UsageError, report_error
from dohle.cli.options import (
    Commands,
    add_client_options,
    add_command,
    add_family,
    topic_partitions,
)
from dohle.cli.session import find_partitions, with_cluster

if TYPE_CHECKING:
    from dohle.client import Cluster
    from dohle.client.metadata import TopicInfo
    from dohle.tiering.cache import RemoteLogMetadataCache
    from dohle.tiering.store import ObjectStore

_LS = """\
List the segments of a topic in the remote tier, as __remote_log_metadata tells of
them: those that can be read (COPY_SEGMENT_FINISHED), those that are being copied or
deleted, and those that a broker has left behind when it died.
"""
_LS_EXAMPLES = """\
examples:
  dohle tier ls orders
  dohle tier ls orders:0 --json | jq .sizeBytes
"""
_VERIFY = """\
Compare what __remote_log_metadata tells of a topic with what is in the store, and
with where the log begins: objects that are missing, of another size, or that no
record tells of, and offsets that are in neither tier. While brokers copy and delete,
an object may be reported that is just coming or going: look again. With --read all
remote records are read, and their checksums and offsets looked at.
"""
_VERIFY_EXAMPLES = """\
examples:
  dohle tier verify orders --tier /mnt/archive
  dohle tier verify orders --tier s3://bucket --prefix kafka/
  dohle tier verify orders:0 --tier /mnt/archive --read

exit codes: 0 all is there, 1 it is not
"""
_REPAIR = """\
Delete the objects of a topic that no record of __remote_log_metadata tells of, such
as those of a copy that a broker could neither finish nor take back. Nobody reads
them, but they take room. What is being copied meanwhile is left alone. See with
--dry-run first what would be deleted.
"""
_REPAIR_EXAMPLES = """\
examples:
  dohle tier repair orders --tier /mnt/archive --dry-run
  dohle tier repair orders --tier /mnt/archive
"""


def add_parser(commands: Commands) -> None:
    """Declare the ``tier`` family."""
    family = add_family(commands, "tier", "look at the remote tier")
    help = "list the remote segments of a topic"
    parser = add_command(family, "ls", help, _LS, _LS_EXAMPLES)
    parser.add_argument("topic", type=topic_partitions, metavar="TOPIC[:P,P]")
    add_client_options(parser)
    parser.set_defaults(run=lambda args: with_cluster(args, lambda found: _list(args, found)))
    help = "compare the store with the metadata"
    parser = add_command(family, "verify", help, _VERIFY, _VERIFY_EXAMPLES)
    _add_store(parser)
    parser.add_argument("--read", action="store_true", help="read all remote records")
    add_client_options(parser)
    parser.set_defaults(run=lambda args: with_cluster(args, lambda found: _verify(args, found)))
    help = "delete objects that the metadata does not mention"
    parser = add_command(family, "repair", help, _REPAIR, _REPAIR_EXAMPLES)
    _add_store(parser)
    parser.add_argument("--dry-run", action="store_true", help="list them, and delete nothing")
    add_client_options(parser)
    parser.set_defaults(run=lambda args: with_cluster(args, lambda found: _repair(args, found)))


def _add_store(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", type=topic_partitions, metavar="TOPIC[:P,P]")
    parser.add_argument(
        "--tier", metavar="URL", required=True, help="the store, as `dohle start --tier` has it"
    )
    parser.add_argument(
        "--prefix", metavar="TEXT", default="", help="the brokers' rsm.config.key.prefix"
    )


async def _list(args: argparse.Namespace, cluster: Cluster) -> int:
    from dohle.cli.output import print_rows
    from dohle.core.uuid import uuid_to_text

    rows: list[dict[str, object]] = [
        {
            "partition": number,
            "startOffset": segment.start_offset,
            "endOffset": segment.end_offset,
            "sizeBytes": segment.size,
            "maxTimestampMs": segment.max_timestamp_ms,
            "state": segment.state.name,
            "brokerId": segment.broker_id,
            "segmentId": uuid_to_text(segment.id),
        }
        for number, cache in (await _read_metadata(args, cluster)).caches.items()
        for segment in sorted(cache, key=lambda each: each.start_offset)
    ]
    print_rows(rows, as_json=args.json, if_empty="nothing of it is in the remote tier")
    return 0


async def _verify(args: argparse.Namespace, cluster: Cluster) -> int:
    from dohle.cli.output import print_json
    from dohle.client import Admin, Beginning, LocalBeginning
    from dohle.core.ids import TopicPartition
    from dohle.tiering.verifying import damage_of, problems_of

    store = _open(args.tier)
    found = await _read_metadata(args, cluster)
    topic, admin = found.topic, Admin(cluster)
    rows: list[dict[str, object]] = []
    for number, cache in found.caches.items():
        place = TopicPartition(topic.name, number)
        start = (await admin.list_offsets({place: Beginning()})).one().offset
        local = (await admin.list_offsets({place: LocalBeginning()})).one().offset
        objects = _objects(args, store, topic, number)
        problems: Iterable[str] = problems_of(cache, objects, start, local, args.prefix)
        if args.read:
            problems = chain(problems, damage_of(cache, store, args.prefix))
        for problem in problems:
            rows.append({"partition": number, "problem": problem})
            if not args.json:
                report_error(f"{place}: {problem}")
    if args.json:
        for row in rows:
            print_json(row)
    elif not rows:
        print(f"{sum(map(len, found.caches.values()))} segments, all there")
    return 1 if rows else 0


async def _repair(args: argparse.Namespace, cluster: Cluster) -> int:
    from dohle.cli.output import print_rows
    from dohle.client import Admin
    from dohle.tiering.store import StoreError
    from dohle.tiering.verifying import objects_without_record

    store, admin = _open(args.tier), Admin(cluster)
    name, numbers = args.topic
    wanted = [each.partition for each in await find_partitions(admin, name, numbers)]
    topic = (await admin.describe_topics([name])).one()
    # Before the records are read: then all of what is being copied is known by its record.
    listed = {number: _objects(args, store, topic, number) for number in wanted}
    found = await _read_metadata(args, cluster)
    rows: list[dict[str, object]] = []
    for number, cache in found.caches.items():
        for key in objects_without_record(cache, listed[number], args.prefix):
            if not args.dry_run:
                try:
                    store.delete(key)
                except StoreError as error:
                    raise CliError(str(error)) from None
            size = listed[number][key]
            rows.append({"partition": number, "key": key, "sizeBytes": size})
    print_rows(rows, as_json=args.json, if_empty="there is nothing to delete")
    return 0


def _objects(
    args: argparse.Namespace, store: ObjectStore, topic: TopicInfo, number: int
) -> dict[str, int]:
    """Return the sizes of all objects of a partition, by their keys."""
    from dohle.tiering.layout import partition_prefix
    from dohle.tiering.segments import SegmentId
    from dohle.tiering.store import StoreError

    any_segment = SegmentId(topic.name, topic.topic_id, number, topic.topic_id)
    try:
        found = store.list(partition_prefix(any_segment, args.prefix))
        return {each.key: each.size for each in found}
    except StoreError as error:
        raise CliError(str(error)) from None


def _open(url: str) -> ObjectStore:
    from os.path import abspath, isdir

    from dohle.storage.files import OsFileSystem
    from dohle.tiering.object_store import InvalidStore, open_store

    if "://" not in url and not isdir(url):
        raise UsageError(f"--tier {url}: there is no such folder. Is the disk mounted?")
    try:
        return open_store(OsFileSystem(), url if "://" in url else abspath(url))
    except InvalidStore as error:
        raise UsageError(f"--tier {error}") from None


class _Found(NamedTuple):
    """What the metadata tells of a topic, by the numbers of its partitions."""

    topic: TopicInfo
    caches: dict[int, RemoteLogMetadataCache]


async def _read_metadata(args: argparse.Namespace, cluster: Cluster) -> _Found:
    """Read what there is of a topic, from the beginning of the metadata topic to its end."""
    from dohle.client import Admin, Beginning, Consumer, ConsumerConfig
    from dohle.protocol.record_framing import decode_remote_log_metadata_record
    from dohle.tiering.cache import RemoteLogMetadataCache
    from dohle.tiering.segments import METADATA_TOPIC, event_of

    name, numbers = args.topic
    admin = Admin(cluster)
    wanted = [each.partition for each in await find_partitions(admin, name, numbers)]
    topic = (await admin.describe_topics([name])).one()
    caches = {number: RemoteLogMetadataCache() for number in wanted}
    try:
        places = await find_partitions(admin, METADATA_TOPIC, None)
    except CliError:
        # Nothing was ever copied in this cluster.
        return _Found(topic, caches)
    async with Consumer(cluster, ConsumerConfig()) as consumer:
        await consumer.assign({each: Beginning() for each in places}, stop_at_end=True)
        async for found in consumer:
            event = event_of(decode_remote_log_metadata_record(found.record.value or b""))
            if event is not None and event.segment_id.topic_id == topic.topic_id:
                cache = caches.get(event.segment_id.partition)
                if cache is not None:
                    cache.apply(event)
    return _Found(topic, caches)
