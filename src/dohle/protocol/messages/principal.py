"""A principal as the broker hands it to the controller.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.protocol.fields import boolean, string
from dohle.protocol.schema import Data


class DefaultPrincipalData(Data, versions="0", flexible="0+"):
    type: str = string("0+")
    name: str = string("0+")
    token_authenticated: bool = boolean("0+")
