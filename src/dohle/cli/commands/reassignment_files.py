"""Plans of reassignments as files, in the format of Kafka's kafka-reassign-partitions."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dohle.cli.errors import CliError, UsageError, describe_os_error
from dohle.client import PartitionReplica
from dohle.core.ids import BrokerId, TopicName, TopicPartition

_VERSION = 1
_ANY_DIRECTORY = "any"
_STDIN = "-"
#: More than any cluster has partitions for.
_BYTES_MAX = 1 << 28


class Plan(NamedTuple):
    """What a file says."""

    replicas: dict[TopicPartition, tuple[BrokerId, ...]]
    #: The directories of those replicas for which it names one.
    places: dict[PartitionReplica, str]


def plan_as_json(assignment: Mapping[TopicPartition, Sequence[int]]) -> dict[str, object]:
    """Return a plan as kafka-reassign-partitions writes it."""
    return {
        "version": _VERSION,
        "partitions": [
            {
                "topic": key.topic,
                "partition": key.partition,
                "replicas": list(replicas),
                "log_dirs": [_ANY_DIRECTORY] * len(replicas),
            }
            for key, replicas in sorted(assignment.items())
        ],
    }


def write_plan(path: str, assignment: Mapping[TopicPartition, Sequence[int]]) -> None:
    """Write a plan to a file that is not there yet."""
    text = json.dumps(plan_as_json(assignment), indent=2) + "\n"
    try:
        with Path(path).open("x") as file:
            file.write(text)
    except FileExistsError:
        raise CliError(f"{path} is there already: name another file, or delete it first") from None
    except OSError as error:
        raise CliError(describe_os_error(error)) from None


def read_plan(path: str) -> Plan:
    """Read a plan; ``-`` is stdin."""
    try:
        text = sys.stdin.read(_BYTES_MAX) if path == _STDIN else Path(path).read_text()
        return _parsed(json.loads(text))
    except OSError as error:
        raise CliError(describe_os_error(error)) from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise UsageError(f"{path} is not a plan: {reason}") from None


def _parsed(plan: Any) -> Plan:
    if plan.get("version", _VERSION) != _VERSION:
        raise ValueError(f"its version is {plan['version']}, not {_VERSION}")
    found: dict[TopicPartition, tuple[BrokerId, ...]] = {}
    places: dict[PartitionReplica, str] = {}
    for entry in plan["partitions"]:
        key = TopicPartition(TopicName(_text(entry["topic"])), _number(entry["partition"]))
        if key in found:
            raise ValueError(f"it has {key} twice")
        replicas = [BrokerId(_number(each)) for each in entry["replicas"]]
        if not replicas or len(set(replicas)) != len(replicas):
            raise ValueError(f"{key} has no replicas, or one of them twice")
        directories = entry.get("log_dirs", [_ANY_DIRECTORY] * len(replicas))
        if len(directories) != len(replicas):
            raise ValueError(f"{key} has {len(replicas)} replicas and {len(directories)} log_dirs")
        for broker, directory in zip(replicas, map(_text, directories), strict=True):
            if directory != _ANY_DIRECTORY:
                places[PartitionReplica(key, broker)] = directory
        found[key] = tuple(replicas)
    if not found:
        raise ValueError("it has no partitions")
    return Plan(found, places)


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is not a number from 0 on")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{value!r} is not a name")
    return value
