"""The subject of a certificate as Java writes it (X500Principal.getName, RFC 2253).

The last name comes first. Only a few attributes have a keyword; any other is its dotted number with
the bytes of its value in hexadecimal, an e-mail address too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
# By their tags; of other kinds the bytes are shown.
_ENCODINGS: Final = {
    12: "utf-8",  # UTF8String
    19: "ascii",  # PrintableString
    20: "latin-1",  # T61String
    22: "ascii",  # IA5String
    27: "ascii",  # GeneralString
    28: "utf-32-be",  # UniversalString
    30: "utf-16-be",  # BMPString
}
_ESCAPED: Final = frozenset(',=+<>#;"\\')
_BLANK: Final = " \r"
_VERSION_TAG: Final = 0xA0
_EXTENSIONS_TAG: Final = 0xA3
_ALTERNATIVE_NAMES: Final = "2.5.29.17"
_LONG_LENGTH: Final = 0x80


class _Element(NamedTuple):
    tag: int
    content: bytes
    #: With tag and length.
    whole: bytes


def subject_name(certificate: bytes) -> str:
    """Return the subject of a certificate in DER; a ValueError if it is none."""
    try:
        signed = next(_elements(next(_elements(certificate)).content))
        fields = [each for each in _elements(signed.content) if each.tag != _VERSION_TAG]
        # Serial number, signature algorithm, issuer, validity, subject.
        subject = fields[4]
        names = [_relative_name(each) for each in _elements(subject.content)]
    except (IndexError, StopIteration, UnicodeDecodeError):
        raise ValueError("this is no certificate") from None
    return ",".join(reversed(names))


def alternative_names(certificate: bytes) -> frozenset[bytes]:
    """Return the other names of a certificate (hosts, addresses), encoded as they are in it."""
    signed = next(_elements(next(_elements(certificate)).content))
    found: set[bytes] = set()
    for part in _elements(signed.content):
        if part.tag != _EXTENSIONS_TAG:
            continue
        for extension in _elements(next(_elements(part.content)).content):
            kind, *_, value = _elements(extension.content)
            if _dotted(kind.content) == _ALTERNATIVE_NAMES:
                names = next(_elements(value.content))
                found.update(each.whole for each in _elements(names.content))
    return frozenset(found)


def _relative_name(names: _Element) -> str:
    return "+".join(_attribute(*_elements(each.content)) for each in _elements(names.content))


def _attribute(kind: _Element, value: _Element) -> str:
    number = _dotted(kind.content)
    keyword, encoding = _KEYWORDS.get(number), _ENCODINGS.get(value.tag)
    if keyword is None or encoding is None:
        return f"{keyword or number}=#{value.whole.hex()}"
    return f"{keyword}={_escaped(value.content.decode(encoding))}"


def _escaped(text: str) -> str:
    first = len(text) - len(text.lstrip(_BLANK))
    last = len(text.rstrip(_BLANK))
    written = []
    for at, character in enumerate(text):
        if character in _ESCAPED or not first <= at < last:
            written.append("\\")
        written.append("\\00" if character == "\0" else character)
    return "".join(written)


def _elements(data: bytes) -> Iterator[_Element]:
    at = 0
    while at < len(data):
        begin, tag, length = at, data[at], data[at + 1]
        at += 2
        if length & _LONG_LENGTH:
            count = length & ~_LONG_LENGTH
            length = int.from_bytes(data[at : at + count], "big")
            at += count
        end = at + length
        if end > len(data):
            raise IndexError("an element is cut off")
        yield _Element(tag, data[at:end], data[begin:end])
        at = end


def _dotted(data: bytes) -> str:
    numbers, value = [], 0
    for byte in data:
        value = value << 7 | byte & 0x7F
        if not byte & _LONG_LENGTH:
            numbers.append(value)
            value = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))
