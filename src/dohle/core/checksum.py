"""CRC-32C, the checksum of batches and of snapshots of producers.

The package that computes it looks its own version up among the installed packages while it is
imported, which takes longer than anything else that a broker imports. So its compiled part, which
is all that is needed, is loaded without the rest.
"""

from __future__ import annotations

from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any, Protocol, cast


class _Checksum(Protocol):
    def __call__(self, data: Any, value: int = 0) -> int: ...


def _load() -> _Checksum:
    package = find_spec("crc32c")
    folders = package.submodule_search_locations if package is not None else None
    spec = PathFinder.find_spec("_crc32c", folders) if folders else None
    if spec is not None and spec.loader is not None:
        compiled = module_from_spec(spec)
        spec.loader.exec_module(compiled)
        return cast(_Checksum, compiled.crc32c)
    from crc32c import crc32c  # another version of the package may be laid out differently

    return crc32c


#: The checksum of some bytes, or of those behind others whose checksum is ``value``.
crc32c = _load()
