"""Maps each file to the function that dumps it, and loops over all files of a command."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from dohle.cli.dump.batches import dump_metadata_snapshot, dump_segment
from dohle.cli.dump.indexes import dump_offset_index, dump_time_index, dump_transaction_index
from dohle.cli.dump.items import Dump, DumpedFile, DumpOptions, Note, Problem, Row
from dohle.cli.dump.output import Writer
from dohle.cli.dump.state_files import (
    dump_clean_shutdown,
    dump_leader_epochs,
    dump_meta_properties,
    dump_offset_checkpoint,
    dump_partition_metadata,
    dump_producer_snapshot,
    dump_quorum_state,
)
from dohle.cli.errors import CliError, describe_os_error, report_error

#: Further problems of a file are only counted.
PROBLEMS_SHOWN_MAX = 20

_TEMPORARY = re.compile(r"(\.deleted|\.cleaned|\.swap|\.part)$")
_BASE_OFFSET = re.compile(r"[0-9]{20}(?=[.-])")


class FileKind(NamedTuple):
    """A kind of file; those of one segment are shown in this order."""

    ending: str
    name: str
    dump: Dump


_KINDS = (
    FileKind("meta.properties", "meta properties", dump_meta_properties),
    FileKind(".kafka_cleanshutdown", "mark of a clean stop", dump_clean_shutdown),
    FileKind("partition.metadata", "partition metadata", dump_partition_metadata),
    FileKind("quorum-state", "quorum state", dump_quorum_state),
    FileKind("leader-epoch-checkpoint", "leader epochs", dump_leader_epochs),
    FileKind("-offset-checkpoint", "offset checkpoint", dump_offset_checkpoint),
    FileKind(".log", "log segment", dump_segment),
    FileKind(".checkpoint", "metadata snapshot", dump_metadata_snapshot),
    FileKind(".index", "offset index", dump_offset_index),
    FileKind(".timeindex", "time index", dump_time_index),
    FileKind(".txnindex", "transaction index", dump_transaction_index),
    FileKind(".snapshot", "producer snapshot", dump_producer_snapshot),
)


def find_kind(name: str) -> FileKind | None:
    """Return the kind of a file, by its name."""
    final = _TEMPORARY.sub("", name)
    for kind in _KINDS:
        # Names that start with a dot or a dash are suffixes, the others whole names.
        if final.endswith(kind.ending) and (kind.ending[0] in ".-" or final == kind.ending):
            return kind
    return None


def dump_all(arguments: Sequence[str], options: DumpOptions, writer: Writer) -> bool:
    """Dump files and folders in turn; return whether all of them were valid."""
    in_order = True
    for argument in arguments:
        try:
            for path in _expand(argument):
                in_order &= _dump_file(path, options, writer)
        except CliError as error:
            in_order = False
            report_error(str(error))
    return in_order


def _expand(argument: str) -> list[str]:
    if not os.path.isdir(argument):
        return [argument]
    known = []
    for name in os.listdir(argument):
        path = os.path.join(argument, name)
        kind = find_kind(name)
        if kind is not None and os.path.isfile(path):
            segment = name.partition(".")[0] if name[:1].isdigit() else ""
            known.append(((segment, _KINDS.index(kind), name), path))
    if not known:
        raise CliError(
            f"{argument}: no file in this folder is of a known kind; give a partition's folder, "
            "or a file"
        )
    return [path for _, path in sorted(known)]


def _dump_file(path: str, options: DumpOptions, writer: Writer) -> bool:
    name = os.path.basename(path)
    kind = find_kind(name)
    try:
        size = os.path.getsize(path)
    except OSError as error:
        raise CliError(describe_os_error(error)) from None
    if kind is None:
        raise CliError(
            f"{path}: the name does not say what kind of file this is; `dohle log dump --help` "
            "lists the known names"
        )
    digits = _BASE_OFFSET.match(name)
    source = DumpedFile(
        # The readers of whole folders put a folder's name and a slash before the file's.
        path=path if "/" in path else f"./{path}",
        kind=kind.name,
        name=_TEMPORARY.sub("", name),
        base_offset=None if digits is None else int(digits[0]),
    )
    problems = 0
    try:
        writer.begin(source, size)
        for item in kind.dump(source, options):
            match item:
                case Row():
                    writer.row(item)
                case Note():
                    writer.note(item)
                case Problem():
                    problems += 1
                    if problems <= PROBLEMS_SHOWN_MAX:
                        writer.problem(item)
        writer.end()
    except BrokenPipeError:
        raise
    except OSError as error:
        writer.end()
        raise CliError(describe_os_error(error)) from None
    if problems > PROBLEMS_SHOWN_MAX:
        report_error(f"{path}: {problems - PROBLEMS_SHOWN_MAX} more problems")
    return problems == 0
