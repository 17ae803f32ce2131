"""How often connections may be made from an address."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address

from dohle.quotas.entities import Bucket, Limit


class AddressRates:
    """The quotas of addresses; the default is for each that has none of its own."""

    __slots__ = ("_by_address",)

    def __init__(self) -> None:
        self._by_address: dict[str | None, float] = {}

    def set(self, address: str | None, rate: float) -> None:
        """Add a quota; None stands for the default."""
        self._by_address[None if address is None else _same_text(address)] = rate

    def __bool__(self) -> bool:
        return bool(self._by_address)

    def find(self, host: str) -> Limit | None:
        """Return the quota of who connects from an address; None if there is no limit."""
        text = _same_text(host)
        bound = self._by_address.get(text, self._by_address.get(None))
        return None if bound is None else Limit(Bucket(text, ""), bound)


def is_address(text: str) -> bool:
    """Tell whether a text is an address in numbers."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _same_text(text: str) -> str:
    """Return an address such that those that are the same have the same text."""
    text = text.partition("%")[0]
    try:
        address = ip_address(text)
    except ValueError:
        return text
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return str(address)
