"""What ``dohle storage info`` shows of a data directory; nothing is opened for writing."""

from __future__ import annotations

from collections.abc import Mapping

from dohle.cli.errors import report_error
from dohle.cli.output import print_fields, print_json, print_table
from dohle.core.uuid import uuid_to_text
from dohle.storage.directory.clean_shutdown import has_clean_shutdown
from dohle.storage.directory.meta_properties import InvalidMetaProperties, read_meta_properties
from dohle.storage.directory.partition_dirs import (
    CorruptPartitionMetadata,
    NotAPartitionDir,
    PartitionDir,
    parse_partition_dir,
    read_partition_metadata,
)
from dohle.storage.files import FileSystem, OsFileSystem, join


def describe_directory(path: str) -> dict[str, object]:
    """Return what is known about a directory; ``problem`` says what is wrong with it."""
    fs = OsFileSystem()
    found: dict[str, object] = {
        "directory": path,
        "version": None,
        "clusterId": None,
        "nodeId": None,
        "directoryId": None,
        "isClean": False,
        "size": 0,
        "partitions": [],
        "problem": None,
    }
    if not fs.exists(path):
        return found | {"problem": "the directory does not exist"}
    try:
        found["partitions"] = _partitions(fs, path)
        found["size"] = _folder_size(fs, path)
        found["isClean"] = has_clean_shutdown(fs, path)
        properties = read_meta_properties(fs, path)
    except FileNotFoundError:
        return found | {"problem": "not formatted: it has no meta.properties"}
    except OSError as error:
        return found | {"problem": error.strerror or str(error)}
    except (InvalidMetaProperties, CorruptPartitionMetadata) as error:
        return found | {"problem": str(error)}
    directory_id = properties.directory_id
    return found | {
        "version": properties.version,
        "clusterId": properties.cluster_id,
        "nodeId": properties.node_id,
        "directoryId": None if directory_id is None else uuid_to_text(directory_id),
    }


def _partitions(fs: FileSystem, path: str) -> list[dict[str, object]]:
    folders: list[tuple[PartitionDir, str]] = []
    for entry in fs.list_dir(path):
        try:
            if entry.is_dir:
                folders.append((parse_partition_dir(entry.name), entry.name))
        except NotAPartitionDir:
            continue
    found = []
    for parsed, name in sorted(folders, key=lambda each: (each[0].topic_partition, each[1])):
        try:
            found.append(_partition(fs, join(path, name), parsed))
        except FileNotFoundError:
            continue  # a running node has just removed it
    return found


def _partition(fs: FileSystem, folder: str, parsed: PartitionDir) -> dict[str, object]:
    names = [entry.name for entry in fs.list_dir(folder)]
    topic_id = read_partition_metadata(fs, folder)
    return {
        "topic": parsed.topic_partition.topic,
        "partition": parsed.topic_partition.partition,
        "kind": parsed.kind.name.lower(),
        "topicId": None if topic_id is None else uuid_to_text(topic_id),
        "segments": sum(name.endswith(".log") for name in names),
        "size": _folder_size(fs, folder),
    }


def _folder_size(fs: FileSystem, folder: str) -> int:
    """Return the bytes of all files below a folder; files removed meanwhile count as 0."""
    size = 0
    for entry in fs.list_dir(folder):
        path = join(folder, entry.name)
        try:
            size += _folder_size(fs, path) if entry.is_dir else fs.stat(path).size
        except FileNotFoundError:
            continue
    return size


def print_directory(found: Mapping[str, object], *, as_json: bool, is_first: bool) -> None:
    """Print one directory; problems go to stderr as well."""
    if as_json:
        print_json(found)
    else:
        if not is_first:
            print()
        _print_text(found)
    if found["problem"] is not None:
        report_error(f"{found['directory']}: {found['problem']}")


def _print_text(found: Mapping[str, object]) -> None:
    partitions = found["partitions"]
    assert isinstance(partitions, list)
    fields = {name: value for name, value in found.items() if name not in ("isClean", "problem")}
    clean = "closed cleanly" if found["isClean"] else "in use, or not closed cleanly"
    print_fields({**fields, "partitions": len(partitions), "state": clean})
    if partitions:
        print()
        print_table(partitions, if_empty="")
