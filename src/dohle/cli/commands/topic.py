"""``dohle topic``: create, list, describe, alter and delete topics."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from dohle.cli import admin_parts
from dohle.cli.errors import UsageError, report_error
from dohle.cli.options import (
    Commands,
    add_client_options,
    add_command,
    add_family,
    as_dict,
    pair,
    positive,
)
from dohle.cli.session import (
    describe_kafka_error,
    exit_code,
    no_such_topic,
    report_failures,
    with_admin,
    with_part,
)

if TYPE_CHECKING:
    from dohle.client import Admin, TopicInfo
    from dohle.client.admin.topics import TopicAdmin

_CREATE_EXAMPLES = """\
examples:
  dohle topic create orders
  dohle topic create orders payments --partitions 12 --config retention.ms=3600000
  dohle topic create orders --if-not-exists
  dohle topic create orders --partitions 12 --validate-only
"""
_LIST_EXAMPLES = """\
examples:
  dohle topic list
  dohle topic list --json | jq -r .name
"""
_DESCRIBE_EXAMPLES = """\
examples:
  dohle topic describe
  dohle topic describe orders
  dohle topic describe orders --json | jq '.partitions[].endOffset'
  dohle topic describe --under-replicated-partitions
"""
_ALTER_EXAMPLES = """\
examples:
  dohle topic alter orders --partitions 24
  dohle topic alter orders --config retention.ms=60000 --config cleanup.policy=delete
  dohle topic alter orders --delete-config retention.ms
"""
_DELETE_EXAMPLES = """\
examples:
  dohle topic delete orders
  dohle topic delete orders payments --if-exists
"""


def add_parser(commands: Commands) -> None:
    """Declare the ``topic`` family."""
    family = add_family(commands, "topic", "create, list, describe, alter and delete topics")
    _add_create(family)
    text = "List all topics, including internal ones."
    parser = add_command(family, "list", "list all topics", text, _LIST_EXAMPLES)
    add_client_options(parser)
    parser.set_defaults(run=lambda args: with_part(args, admin_parts.topics, list_topics))
    text = (
        "Show topics: partitions with leader, replicas, in-sync replicas and offsets, and the\n"
        "configs that were set for the topic. Of a compacted topic also what part of it is dirty,\n"
        "when it was last cleaned since the broker was started, and why it cannot be, if so (only\n"
        "dohle's brokers tell that)."
    )
    help = "show partitions, offsets and configs"
    parser = add_command(family, "describe", help, text, _DESCRIBE_EXAMPLES)
    parser.add_argument("names", nargs="*", metavar="TOPIC", help="default: all topics")
    parser.add_argument(
        "--under-replicated-partitions",
        action="store_true",
        help="list partitions with replicas out of sync instead, and nothing if there are none",
    )
    add_client_options(parser)
    parser.set_defaults(run=lambda args: with_admin(args, describe_topics))
    _add_alter(family)
    text = "Delete topics with all their records. They cannot be brought back."
    help = "delete topics with all their records"
    parser = add_command(family, "delete", help, text, _DELETE_EXAMPLES)
    parser.add_argument("names", nargs="+", metavar="TOPIC")
    parser.add_argument(
        "--if-exists", action="store_true", help=("ignore topics that do not exist")
    )
    add_client_options(parser)
    parser.set_defaults(run=lambda args: with_part(args, admin_parts.topics, delete_topics))


def _add_create(family: Commands) -> None:
    text = "Create topics. Everything not given is left to the broker's configuration."
    parser = add_command(family, "create", "create topics", text, _CREATE_EXAMPLES)
    parser.add_argument("names", nargs="+", metavar="TOPIC")
    parser.add_argument(
        "--partitions", type=positive, metavar="N", help="default: the broker's num.partitions"
    )
    parser.add_argument(
        "--replication-factor",
        type=positive,
        metavar="N",
        help="default: the broker's default.replication.factor",
    )
    parser.add_argument(
        "--config",
        type=pair,
        action="append",
        metavar="NAME=VALUE",
        help="a topic config; may be repeated",
    )
    parser.add_argument("--if-not-exists", action="store_true", help="ignore topics that exist")
    parser.add_argument(
        "--validate-only", action="store_true", help="only check whether they could be created"
    )
    add_client_options(parser)
    parser.set_defaults(run=lambda args: with_part(args, admin_parts.topics, create_topics))


def _add_alter(family: Commands) -> None:
    text = "Give a topic more partitions, or other configs."
    parser = add_command(family, "alter", "change partitions and configs", text, _ALTER_EXAMPLES)
    parser.add_argument("name", metavar="TOPIC")
    parser.add_argument(
        "--partitions",
        type=positive,
        metavar="N",
        help=("the new number of partitions: more than now"),
    )
    parser.add_argument(
        "--config", type=pair, action="append", metavar="NAME=VALUE", help="set a config"
    )
    parser.add_argument(
        "--delete-config",
        action="append",
        metavar="NAME",
        help="reset a config to the broker's default",
    )
    add_client_options(parser)
    parser.set_defaults(run=_run_alter)


def _run_alter(args: argparse.Namespace) -> int:
    if not (args.partitions or args.config or args.delete_config):
        raise UsageError("nothing to alter: give --partitions, --config or --delete-config")
    return with_admin(args, alter_topic)


async def create_topics(args: argparse.Namespace, admin: TopicAdmin) -> int:
    """Create topics with the same settings."""
    from dohle.client import NewTopic, Results
    from dohle.core.errors import ErrorCode
    from dohle.core.uuid import uuid_to_text

    topics = [
        NewTopic(
            name,
            partitions=args.partitions or -1,
            replication_factor=args.replication_factor or -1,
            configs=as_dict(args.config),
        )
        for name in args.names
    ]
    results = await admin.create_topics(topics, validate_only=args.validate_only)
    if args.if_not_exists:
        known = ErrorCode.TOPIC_ALREADY_EXISTS
        there = [name for name, error in results.errors.items() if error.code is known]
        errors = {name: error for name, error in results.errors.items() if name not in there}
        results = Results(results.done, errors)
        for name in there:
            _tell(args, {"name": name, "result": "exists"}, "exists already")
    result = "valid" if args.validate_only else "created"
    for name, created in report_failures(results).items():
        counts = {
            "partitions": created.partitions,
            "replicationFactor": created.replication_factor,
        }
        shown = ", ".join(f"{what}: {count}" for what, count in counts.items() if count > 0)
        fields = {"name": name, "result": result, "topicId": uuid_to_text(created.topic_id)}
        _tell(args, {**fields, **counts}, f"{result} ({shown})" if shown else result)
    return exit_code(results)


async def list_topics(args: argparse.Namespace, admin: TopicAdmin) -> int:
    """Print one row per topic."""
    from dohle.cli.output import print_rows

    topics = sorted((await admin.list_topics()).values(), key=lambda topic: topic.name)
    rows = [_summary(topic) for topic in topics]
    if_empty = "there are no topics; `dohle topic create NAME` creates one"
    print_rows(rows, as_json=args.json, if_empty=if_empty)
    return 0


def _summary(topic: TopicInfo) -> dict[str, object]:
    from dohle.core.uuid import uuid_to_text

    return {
        "name": topic.name,
        "partitions": len(topic.partitions),
        "replicationFactor": max(
            (len(one.replicas) for one in topic.partitions.values()), default=0
        ),
        "topicId": uuid_to_text(topic.topic_id),
        "isInternal": topic.is_internal,
    }


async def describe_topics(args: argparse.Namespace, admin: Admin) -> int:
    """Print all details of topics."""
    from dohle.cli.commands.topic_description import (
        describe,
        print_description,
        under_replicated,
    )
    from dohle.cli.output import print_rows
    from dohle.client import Results
    from dohle.core.errors import ErrorCode

    if args.names:
        results = await admin.describe_topics(args.names)
    else:
        results = Results(await admin.list_topics())
    topics = sorted(results.done.values(), key=lambda topic: topic.name)
    if args.under_replicated_partitions:
        rows = await under_replicated(admin, topics)
        print_rows(rows, as_json=args.json, if_empty="all replicas are in sync")
        topics = []
    for number, description in enumerate(await describe(admin, topics)):
        print_description(description, as_json=args.json, is_first=number == 0)
    for name, error in results.errors.items():
        is_unknown = error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        report_error(no_such_topic(name) if is_unknown else describe_kafka_error(error))
    return exit_code(results)


async def alter_topic(args: argparse.Namespace, admin: Admin) -> int:
    """Change configs first: they can be refused before anything has changed."""
    from dohle.client import AlterOp, ConfigChange, ConfigResource, ResourceType

    changes = [ConfigChange(name, AlterOp.SET, value) for name, value in args.config or ()]
    changes += [ConfigChange(name, AlterOp.DELETE) for name in args.delete_config or ()]
    if changes:
        resource = ConfigResource(ResourceType.TOPIC, args.name)
        (await admin.incremental_alter_configs({resource: changes})).ok()
    if args.partitions:
        (await admin.create_partitions({args.name: args.partitions})).ok()
    _tell(args, {"name": args.name, "result": "altered"}, "altered")
    return 0


async def delete_topics(args: argparse.Namespace, admin: TopicAdmin) -> int:
    """Delete topics by name."""
    from dohle.client import KafkaError, Results
    from dohle.core.errors import ErrorCode

    results = await admin.delete_topics(args.names)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    errors = {name: error for name, error in results.errors.items() if error.code != unknown}
    for name in [name for name in results.errors if name not in errors]:
        if args.if_exists:
            _tell(args, {"name": name, "result": "missing"}, "does not exist")
        else:
            # What brokers say of it is about partitions that they do not host.
            errors[name] = KafkaError(unknown, no_such_topic(name))
    results = Results(results.done, errors)
    for name in report_failures(results):
        _tell(args, {"name": name, "result": "deleted"}, "deleted")
    return exit_code(results)


def _tell(args: argparse.Namespace, fields: dict[str, object], text: str) -> None:
    from dohle.cli.output import print_json

    if args.json:
        print_json(fields)
    else:
        print(f"{fields['name']}: {text}")
