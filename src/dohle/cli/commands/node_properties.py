"""Merges a file and options into the properties of a node.

The defaults of the command line have the lowest precedence, then comes the file, then the options;
``-X`` overrides everything. An option also replaces what the file says about the same thing in
other words: ``--listener`` replaces the file's advertised addresses, ``--data`` its ``log.dir`` and
``metadata.log.dir``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dohle.cli.errors import (
    UsageError,
    describe_os_error,
    report_note,
    report_warning,
)
from dohle.core.config.static import SINGLE_NODE, BrokerConfig, Notice, NoticeLevel
from dohle.core.errors import KafkaError
from dohle.storage.directory.java_properties import parse_properties
from dohle.storage.directory.meta_properties import load_ensemble
from dohle.storage.files import OsFileSystem

DATA_DEFAULT = "./data"
LISTENER_DEFAULT = "127.0.0.1:9092"
METRICS_DEFAULT = "127.0.0.1:9644"

_LISTENER_NAME = "PLAINTEXT"
_NODE_ID_NAMES = ("node.id", "broker.id")


def read_properties(path: str) -> dict[str, str]:
    """Parse a ``server.properties``."""
    try:
        return parse_properties(OsFileSystem().read(path))
    except OSError as error:
        raise UsageError(describe_os_error(error)) from None
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from None


def lay_over(
    file: Mapping[str, str],
    *,
    data: Sequence[str] | None = None,
    listener: str | None = None,
    advertised: str | None = None,
    node_id: int | None = None,
    more: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the properties of a node."""
    found = dict(file)
    if data is None and found.keys().isdisjoint(("log.dirs", "log.dir")):
        data = [DATA_DEFAULT]
    if data is not None:
        found.pop("log.dir", None)
        found.pop("metadata.log.dir", None)
        found["log.dirs"] = ",".join(data)
    if listener is None and "listeners" not in found:
        listener = LISTENER_DEFAULT
    if listener is not None:
        found["listeners"] = _with_listener(found, listener)
        found.pop("advertised.listeners", None)
    if advertised is not None:
        found["advertised.listeners"] = _advertised(found, advertised)
    if node_id is not None:
        found.pop("broker.id", None)
        found["node.id"] = str(node_id)
    found |= more or {}
    return found


def with_metrics(properties: Mapping[str, str]) -> dict[str, str]:
    """Serve metrics unless the properties say where or that they are not to be.

    A broker that listens on any free port is one of several: so does its port for metrics.
    """
    any_port = any(entry.endswith(":0") for entry in properties["listeners"].split(","))
    return {"metrics.listener": "127.0.0.1:0" if any_port else METRICS_DEFAULT, **properties}


def _with_listener(found: Mapping[str, str], listener: str) -> str:
    """Return the listeners with the one for clients replaced; the controller's stay."""
    names = {name.strip().upper() for name in found.get("controller.listener.names", "").split(",")}
    entries = [entry.strip() for entry in found.get("listeners", "").split(",") if entry.strip()]
    kept = [entry for entry in entries if entry.partition(":")[0].upper() in names]
    name = found.get("inter.broker.listener.name") or _LISTENER_NAME
    return ",".join([f"{name}://{listener}", *kept])


def _advertised(found: Mapping[str, str], advertised: str) -> str:
    """Return what clients are told; the port is the listener's if it is left out."""
    name = found.get("inter.broker.listener.name") or _LISTENER_NAME
    entries = [entry.strip() for entry in found["listeners"].split(",")]
    ours = next((entry for entry in entries if entry.startswith(f"{name}://")), entries[0])
    if not advertised.rpartition(":")[2].isdigit() or advertised.endswith("]"):
        advertised = f"{advertised}:{ours.rpartition(':')[2]}"
    return f"{name}://{advertised}"


def refuse_zookeeper_mode(path: str | None, file: Mapping[str, str]) -> None:
    """Refuse a file that is not of a Kafka in KRaft mode: its data cannot be read as such."""
    if "zookeeper.connect" in file and "process.roles" not in file:
        raise UsageError(
            f"{path} is of a Kafka in ZooKeeper mode (it has zookeeper.connect and no "
            "process.roles), whose metadata is not in its data directories. Migrate the cluster to "
            "KRaft with Kafka 3.9, or start with a file of its own and empty directories"
        )


def load_and_report(
    properties: Mapping[str, str], more: Mapping[str, str], *, verbose: bool
) -> BrokerConfig:
    """Check the properties, and tell which have no effect; unknown ones of ``-X`` are refused."""
    config, notices = load_config(properties)
    unknown = [one.message for one in notices if one.is_unknown and one.key in more]
    if unknown:
        raise UsageError("\n".join(f"-X {message}" for message in unknown))
    for notice in notices:
        if notice.level is NoticeLevel.WARNING:
            report_warning(notice.message)
        elif verbose:
            report_note(notice.message)
    return config


def load_config(properties: Mapping[str, str]) -> tuple[BrokerConfig, list[Notice]]:
    """Check the properties; without a node id, that of the data directories is used."""
    try:
        config, notices = BrokerConfig.from_properties(_completed(properties))
        if properties.keys().isdisjoint(_NODE_ID_NAMES):
            found = load_ensemble(OsFileSystem(), config.log_dirs).node_id
            if found is not None and found != config.node_id:
                named = {**properties, "node.id": str(found)}
                config, notices = BrokerConfig.from_properties(_completed(named))
    except KafkaError as error:
        raise UsageError(str(error.args[0])) from None
    return config, notices


def _completed(properties: Mapping[str, str]) -> dict[str, str]:
    """Add what a node that is alone need not be told; of several, Kafka's defaults hold."""
    more: Mapping[str, str] = SINGLE_NODE
    if _has_others(properties):
        more = {name: SINGLE_NODE[name] for name in ("node.id", "process.roles")}
    completed = {**more, **properties}
    if "broker.id" in properties and "node.id" not in properties:
        del completed["node.id"]
    return completed


def _has_others(properties: Mapping[str, str]) -> bool:
    """Tell whether the node is told of another: a controller, or one where there is none here."""
    quorum = ("controller.quorum.voters", "controller.quorum.bootstrap.servers")
    roles = properties.get("process.roles", "broker,controller")
    return "," not in roles or any("," in properties.get(name, "") for name in quorum)
