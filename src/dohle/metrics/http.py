"""As much of HTTP/1.1 as a scrape or a probe needs, without I/O.

One request a connection: it is answered, and the connection closed. Whatever is not a small GET or
HEAD is refused; no body is read.
"""

from __future__ import annotations

from dataclasses import dataclass

#: A request head may not be longer.
HEAD_BYTES_MAX = 8 * 1024

_END = b"\r\n\r\n"
_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """What is asked for."""

    method: str
    path: str


class BadRequest(Exception):
    """A request that is refused, with the status to say so."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def parse_head(received: bytes | bytearray) -> HttpRequest | None:
    """Return the request that has arrived; None while its head is not complete."""
    end = received.find(_END)
    if end < 0:
        if len(received) >= HEAD_BYTES_MAX:
            raise BadRequest(431, f"the request head is longer than {HEAD_BYTES_MAX} bytes")
        return None
    line = bytes(received[: received.find(b"\r\n")])
    parts = line.split(b" ")
    if len(parts) != 3 or not parts[2].startswith(b"HTTP/1.") or not line.isascii():
        raise BadRequest(400, "this is not a request of HTTP/1")
    method, target = parts[0].decode(), parts[1].decode()
    if method not in ("GET", "HEAD"):
        raise BadRequest(405, "only GET and HEAD are served")
    return HttpRequest(method, target.partition("?")[0])


def response_head(
    status: int, content_type: str, length: int | None = None, *, is_chunked: bool = False
) -> bytes:
    """Return a response up to its body; one whose length is not known yet comes in chunks."""
    lines = [
        f"HTTP/1.1 {status} {_REASONS[status]}",
        f"Content-Type: {content_type}",
        "Connection: close",
        "Cache-Control: no-store",
    ]
    if length is not None:
        lines.append(f"Content-Length: {length}")
    if is_chunked:
        lines.append("Transfer-Encoding: chunked")
    if status == 405:
        lines.append("Allow: GET, HEAD")
    return "\r\n".join(lines).encode() + _END


def text_response(status: int, text: str) -> bytes:
    """Return a whole response of a few words."""
    body = f"{text}\n".encode()
    return response_head(status, "text/plain; charset=utf-8", len(body)) + body


def chunk(text: str) -> bytes:
    """Return a piece of a body."""
    data = text.encode()
    return b"%x\r\n%b\r\n" % (len(data), data)


def last_chunk() -> bytes:
    """Return the end of a body: without it, the reader knows that something is missing."""
    return b"0\r\n\r\n"
