"""Object stores of clouds, by ``obstore`` (the extra ``tiered``): S3, Google Cloud Storage, Azure.

Credentials come from the environment, in the usual ways of each cloud. Requests time out, and are
repeated with growing delays, by ``obstore`` itself; large objects are written in parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from dohle.storage.files import FileSystem
from dohle.tiering.store import FolderStore, ObjectNotFound, ObjectStore, StoredObject, StoreError

SCHEMES: Final = frozenset({"s3", "gs", "az", "abfs", "abfss", "azure"})
#: Of an object that is written, so much is in memory: two parts, each so large.
_PART_BYTES: Final = 8 * 1024 * 1024
_PARTS_AT_ONCE: Final = 2
_CLIENT: Final = {
    "timeout": timedelta(seconds=60),
    "connect_timeout": timedelta(seconds=10),
    # For a store of one's own, whose endpoint is named so; those of clouds are https.
    "allow_http": True,
}
_RETRIES: Final = {"max_retries": 5, "retry_timeout": timedelta(seconds=120)}


class InvalidStore(Exception):
    """A URL that is none of a store, or a store that cannot be opened; says why."""


def open_store(files: FileSystem, url: str) -> ObjectStore:
    """Return the store that a URL names; a path is a folder, too."""
    parts = urlsplit(url)
    if not parts.scheme and url.startswith("/"):
        return FolderStore(files, url)
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost") or not parts.path:
            raise InvalidStore(f"{url}: a folder of this machine is file:///FOLDER")
        return FolderStore(files, unquote(parts.path))
    if parts.scheme not in SCHEMES:
        raise InvalidStore(
            f"{url}: a store is file:///FOLDER, s3://BUCKET, gs://BUCKET or az://CONTAINER"
        )
    try:
        from obstore.store import from_url
    except ImportError:
        raise InvalidStore(f"{url} needs obstore: pip install 'dohle[tiered]'") from None
    try:
        return CloudStore(from_url(url, client_options=_CLIENT, retry_config=_RETRIES), url)  # type: ignore[call-overload]
    except Exception as error:
        raise InvalidStore(f"{url} cannot be used: {_first_line(error)}") from error


class CloudStore:
    """Objects of a bucket."""

    def __init__(self, store: Any, url: str) -> None:
        import obstore

        self._obstore = obstore
        self._store = store
        self._url = url.rstrip("/")

    def put(self, key: str, pieces: Iterable[bytes]) -> None:
        """Write an object, in parts if it is large: it is there when the last one is."""
        try:
            self._obstore.put(
                self._store,
                key,
                iter(pieces),
                chunk_size=_PART_BYTES,
                max_concurrency=_PARTS_AT_ONCE,
            )
        except StoreError:
            raise
        except Exception as error:
            raise self._failed(key, "written", error) from error

    def get(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        """Read an object, or a range of it."""
        try:
            if size is None:
                found = bytes(self._obstore.get(self._store, key).bytes())
                return found[start:]
            if size == 0:
                return b""
            return bytes(self._obstore.get_range(self._store, key, start=start, length=size))
        except FileNotFoundError as error:
            raise ObjectNotFound(f"{self._url}/{key} is not there") from error
        except Exception as error:
            raise self._failed(key, "read", error) from error

    def delete(self, key: str) -> None:
        """Delete an object."""
        try:
            self._obstore.delete(self._store, key)
        except FileNotFoundError:
            return
        except Exception as error:
            raise self._failed(key, "deleted", error) from error

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """Ask for the listing, page by page."""
        # The store's own prefixes end with a folder.
        folder = prefix.rpartition("/")[0]
        try:
            for page in self._obstore.list(self._store, prefix=folder or None):
                for found in page:
                    if found["path"].startswith(prefix):
                        yield StoredObject(found["path"], found["size"])
        except Exception as error:
            raise self._failed(prefix, "listed", error) from error

    def _failed(self, key: str, what: str, error: Exception) -> StoreError:
        return StoreError(f"{self._url}/{key} cannot be {what}: {_first_line(error)}")


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
