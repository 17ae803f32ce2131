"""``dohle storage backup``: finds out whether the node runs, and copies its directories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from http.client import HTTPConnection, HTTPException
from os.path import abspath

from dohle.cli.errors import CliError, UsageError, describe_os_error
from dohle.core.config.listeners import parse_address
from dohle.core.errors import KafkaError
from dohle.storage.backup import BackupFailed, NodeCut, copy_cut, copy_stopped, parse_cut
from dohle.storage.directory.meta_properties import META_PROPERTIES
from dohle.storage.files import FileSystem, OsFileSystem, join
from dohle.storage.moves.copy import CopyFailed

_TIMEOUT_S = 60


def back_up(paths: Sequence[str], target: str, node: str) -> None:
    """Copy the directories; a CliError says why there is no whole copy."""
    fs = OsFileSystem()
    targets = _targets(fs, [abspath(path) for path in paths], target)
    try:
        with ExitStack() as locks:
            if _lock_all(fs, targets, locks):
                for path, copy in targets.items():
                    fs.make_dirs(copy)
                    copy_stopped(fs, path, copy)
                print(f"copied {', '.join(targets)}: no node was using it")
                return
        cut = _ask(node, targets)
        for copy in targets.values():
            fs.make_dirs(copy)
        gone = copy_cut(fs, cut, targets)
    except (BackupFailed, CopyFailed) as error:
        raise CliError(f"{error}. What was copied to {target} is not complete.") from None
    except OSError as error:
        raise CliError(describe_os_error(error)) from None
    for folder in gone:
        print(f"left out {folder}: it was deleted meanwhile")
    copied = len(cut.logs) - len(gone)
    print(f"copied {copied} logs of the node at {node}, as they were at one moment, to {target}")


def _targets(fs: FileSystem, paths: list[str], target: str) -> dict[str, str]:
    for path in paths:
        if not fs.exists(join(path, META_PROPERTIES)):
            raise CliError(f"{path} is not a data directory: it has no {META_PROPERTIES}")
    if fs.exists(target) and fs.list_dir(target):
        raise UsageError(f"{target} is not empty: choose another folder")
    if len(paths) == 1:
        return {paths[0]: target}
    return {path: join(target, str(number)) for number, path in enumerate(paths, 1)}


def _lock_all(fs: FileSystem, paths: Mapping[str, str], locks: ExitStack) -> bool:
    """Keep nodes out while the directories are copied; False if one has them already."""
    try:
        for path in paths:
            locks.callback(fs.lock(join(path, ".lock")).release)
    except BlockingIOError:
        locks.close()
        return False
    return True


def _ask(node: str, paths: Mapping[str, str]) -> NodeCut:
    try:
        host, port = parse_address(node, "--node")
    except KafkaError as error:
        raise UsageError(str(error.args[0])) from None
    connection = HTTPConnection(host or "127.0.0.1", port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", "/backup-cut")
        answer = connection.getresponse()
        body = answer.read()
    except (OSError, HTTPException) as error:
        raise CliError(
            f"a node is using the data, and does not answer at {node} ({error}): name its "
            "metrics.listener with --node, or stop it first"
        ) from None
    finally:
        connection.close()
    if answer.status != 200:
        raise CliError(f"the node at {node} answers {answer.status}: {body.decode().strip()}")
    cut = parse_cut(body.splitlines())
    if (found := {abspath(path) for path in cut.directories}) != set(paths):
        raise CliError(
            f"the node at {node} has its data in {', '.join(sorted(found))}: name those with "
            "--data, or another node with --node"
        )
    return cut
