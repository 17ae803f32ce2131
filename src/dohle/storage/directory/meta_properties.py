"""``meta.properties``: to which node of which cluster a log directory belongs.

Version 1 has ``node.id`` and ``cluster.id``; version 0, from before KRaft, has ``broker.id`` and
may lack either. ``directory.id`` tells the directories of one node apart. Version 1 is written.
Before a node uses its directories, they must agree, and the metadata log must be where the node
looks for it: see :class:`MetaPropertiesEnsemble`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from dohle.core.ids import BrokerId, Uuid
from dohle.core.uuid import is_reserved, uuid_from_text, uuid_to_text
from dohle.storage.directory.java_properties import format_properties, parse_properties
from dohle.storage.files import FileSystem, join, write_atomically

META_PROPERTIES: Final = "meta.properties"
METADATA_FOLDER: Final = "__cluster_metadata-0"
HOW_TO_RESTORE: Final = (
    "Restore it from a backup, or let `dohle storage recover-metadata` show what it would write, "
    "and write it with --apply."
)


class InvalidMetaProperties(Exception):
    """A ``meta.properties`` that cannot be used, alone or beside the others; the text says why."""


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The content of one file. Only version 0 may lack the node or the cluster."""

    cluster_id: str | None
    node_id: BrokerId | None
    directory_id: Uuid | None
    version: int = 1


@dataclass(frozen=True, slots=True)
class MetaPropertiesEnsemble:
    """The files of all of a node's log directories."""

    #: The directories with a readable file.
    properties: Mapping[str, MetaProperties]
    #: Directories without the file: new, or wiped.
    empty_dirs: tuple[str, ...]
    #: Directories whose file cannot be read, and why. A node runs on without them.
    failed_dirs: Mapping[str, Exception]

    @property
    def cluster_id(self) -> str | None:
        """The first cluster id found."""
        ids = (found.cluster_id for found in self.properties.values())
        return next((found for found in ids if found is not None), None)

    @property
    def node_id(self) -> BrokerId | None:
        """The first node id found."""
        ids = (found.node_id for found in self.properties.values())
        return next((found for found in ids if found is not None), None)

    def verify(self, cluster_id: str | None = None, node_id: BrokerId | None = None) -> None:
        """Refuse directories that are not all of one node, or not of the expected one.

        Node and cluster ids must be the same everywhere; directory ids must all differ, and must
        not be Kafka's reserved ones.
        """
        owners: dict[Uuid, str] = {}
        for folder, found in self.properties.items():
            path = join(folder, META_PROPERTIES)
            if found.cluster_id is not None:
                cluster_id = found.cluster_id if cluster_id is None else cluster_id
                if found.cluster_id != cluster_id:
                    raise InvalidMetaProperties(
                        f"{path} has cluster.id {found.cluster_id}, but {cluster_id} is expected. "
                        "The directory is another cluster's: take it out of log.dirs, or empty it "
                        "if its data is not needed."
                    )
            if found.node_id is not None:
                node_id = found.node_id if node_id is None else node_id
                if found.node_id != node_id:
                    raise InvalidMetaProperties(
                        f"{path} has node.id {found.node_id}, but {node_id} is expected. If the "
                        "data was moved here, configure the node.id that it had; for a new node, "
                        "empty its log directories first."
                    )
            if found.directory_id is not None:
                _verify_directory_id(path, found.directory_id, owners)

    def verify_metadata_dir(self, fs: FileSystem, path: str) -> None:
        """Refuse a directory for the metadata log if the log seems to be in another one.

        A node that began a new metadata log would know no topics, and set all logs aside.
        """
        for folder in self.properties:
            if folder != path and fs.exists(join(folder, METADATA_FOLDER)):
                raise InvalidMetaProperties(
                    f"{folder} has a metadata log, but metadata.log.dir (by default the first of "
                    f"log.dirs) is {path}: let it name the directory of the metadata log."
                )
        if self.properties and path in self.empty_dirs:
            raise InvalidMetaProperties(
                f"{path} is the directory of the metadata log, but has no meta.properties, while "
                f"{next(iter(self.properties))} has one. Mount its disk, or let metadata.log.dir "
                "(by default the first of log.dirs) name the directory of the metadata log."
            )


def _verify_directory_id(path: str, directory_id: Uuid, owners: dict[Uuid, str]) -> None:
    text = uuid_to_text(directory_id)
    if is_reserved(directory_id):
        raise InvalidMetaProperties(
            f"{path} has directory.id {text}, which is reserved. Remove that line: the directory "
            "gets a new id at the next start."
        )
    other = owners.setdefault(directory_id, path)
    if other != path:
        raise InvalidMetaProperties(
            f"{path} has directory.id {text}, and so has {other}. One is a copy of the other, or "
            "both are the same directory: take one out of log.dirs."
        )


def load_ensemble(fs: FileSystem, log_dirs: Iterable[str]) -> MetaPropertiesEnsemble:
    """Read the file in each of the directories."""
    properties: dict[str, MetaProperties] = {}
    empty: list[str] = []
    failed: dict[str, Exception] = {}
    for folder in log_dirs:
        try:
            properties[folder] = read_meta_properties(fs, folder)
        except FileNotFoundError:
            empty.append(folder)
        except (OSError, InvalidMetaProperties) as error:
            failed[folder] = error
    return MetaPropertiesEnsemble(properties, tuple(empty), failed)


def read_meta_properties(fs: FileSystem, folder: str) -> MetaProperties:
    """Read one directory's file; FileNotFoundError if it was never formatted."""
    path = join(folder, META_PROPERTIES)
    data = fs.read(path)
    try:
        return _from_properties(parse_properties(data))
    except ValueError as error:
        raise InvalidMetaProperties(f"{path}: {error}. {HOW_TO_RESTORE}") from None


def write_meta_properties(
    fs: FileSystem, folder: str, properties: MetaProperties, now_ms: int
) -> None:
    """Write the file and return once it is on the disk. Version 0 cannot be written."""
    if properties.version != 1 or properties.node_id is None or properties.cluster_id is None:
        raise ValueError(f"only a version 1 with node and cluster can be written: {properties}")
    pairs = {
        "version": "1",
        "cluster.id": properties.cluster_id,
        "node.id": str(properties.node_id),
    }
    if properties.directory_id is not None:
        pairs["directory.id"] = uuid_to_text(properties.directory_id)
    write_atomically(fs, join(folder, META_PROPERTIES), format_properties(pairs, now_ms))


def _from_properties(pairs: Mapping[str, str]) -> MetaProperties:
    version = _to_int("version", pairs.get("version", "0").strip())
    if version not in (0, 1):
        raise ValueError(f"version {version} is unknown, only 0 and 1 are known")
    node_key = "broker.id" if version == 0 else "node.id"
    cluster_id = pairs.get("cluster.id")
    if version == 1:
        missing = [key for key in ("node.id", "cluster.id") if key not in pairs]
        if missing:
            raise ValueError(f"version 1 needs {' and '.join(missing)}")
    elif cluster_id is None and node_key not in pairs:
        raise ValueError("it names neither a node nor a cluster: it is empty, or was cut")
    node_id = BrokerId(_to_int(node_key, pairs[node_key])) if node_key in pairs else None
    directory_id = uuid_from_text(pairs["directory.id"]) if "directory.id" in pairs else None
    return MetaProperties(cluster_id, node_id, directory_id, version)


def _to_int(key: str, text: str) -> int:
    digits = text[1:] if text[:1] in ("-", "+") else text
    if digits.isascii() and digits.isdigit() and len(digits) <= 10:
        number = int(text)
        if -(1 << 31) <= number < 1 << 31:
            return number
    raise ValueError(f"{key} is {text[:60]!r}, not a number")
