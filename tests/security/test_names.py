"""Names in certificates, and the users they become (facts: security.md, section 2)."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from dohle.core.errors import KafkaError
from dohle.security.distinguished_names import subject_name
from dohle.security.mapping_rules import MappingRules
from tests.security.authority import Authority, name_of

_CN, _O, _OU = NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME

#: Recorded of OpenJDK 17: X509Certificate.getSubjectX500Principal().getName().
_OF_JAVA = [
    (
        name_of((NameOID.COUNTRY_NAME, "DE"), (_O, 'Dohle, Inc. = "x" <y>'), (_CN, "al+ice#")),
        'CN=al\\+ice\\#,O=Dohle\\, Inc. \\= \\"x\\" \\<y\\>,C=DE',
    ),
    (
        name_of((_CN, "bob"), (NameOID.EMAIL_ADDRESS, "b@x.de")),
        "1.2.840.113549.1.9.1=#16066240782e6465,CN=bob",
    ),
    (
        name_of(
            (NameOID.DOMAIN_COMPONENT, "de"),
            (NameOID.DOMAIN_COMPONENT, "x"),
            (NameOID.USER_ID, "u1"),
            (NameOID.SERIAL_NUMBER, "12"),
        ),
        "2.5.4.5=#13023132,UID=u1,DC=x,DC=de",
    ),
    (name_of((_CN, "  two blanks \\ ;")), "CN=\\ \\ two blanks \\\\ \\;"),
    (
        name_of(
            (_CN, "Jürgen 鳥"),
            (NameOID.STREET_ADDRESS, "a b"),
            (NameOID.STATE_OR_PROVINCE_NAME, "BY"),
            (NameOID.LOCALITY_NAME, "M"),
        ),
        "L=M,ST=BY,STREET=a b,CN=Jürgen 鳥",
    ),
    (
        name_of((_CN, "#lead"), (_OU, "ops"), (NameOID.TITLE, "Dr")),
        "2.5.4.12=#0c024472,OU=ops,CN=\\#lead",
    ),
    (
        x509.Name(
            [
                x509.RelativeDistinguishedName(
                    [x509.NameAttribute(_CN, "multi"), x509.NameAttribute(_OU, "zzz")]
                ),
                x509.RelativeDistinguishedName([x509.NameAttribute(_O, "o")]),
            ]
        ),
        "O=o,OU=zzz+CN=multi",
    ),
]


@pytest.mark.parametrize(("name", "shown"), _OF_JAVA)
def test_a_subject_is_written_as_java_writes_it(
    tmp_path: Path, name: x509.Name, shown: str
) -> None:
    """Section 2, Principal: "test it against a recorded Java value"."""
    assert subject_name(Authority(tmp_path).issue(name).der) == shown


def test_what_is_no_certificate_has_no_subject() -> None:
    for data in (b"", b"\x30", b"\x30\x03\x02\x01\x01", b"\x30\x84\xff\xff\xff\xff"):
        with pytest.raises(ValueError, match="no certificate"):
            subject_name(data)


_NAME = "CN=Duke,OU=ServiceUsers,O=Org,C=US"


@pytest.mark.parametrize(
    ("rules", "name", "user"),
    [
        ("", _NAME, _NAME),
        ("DEFAULT", _NAME, _NAME),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", _NAME, "Duke"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L,DEFAULT", _NAME, "duke"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1@$2/U", _NAME, "DUKE@$2"),
        ("RULE:^CN=nobody$/x/,RULE:^CN=(.*?),.*,C=(.*)$/$1\\/$2/", _NAME, "Duke/US"),
        ("RULE:^CN=(.*?)$/$1/,DEFAULT", _NAME, "Duke,OU=ServiceUsers,O=Org,C=US"),
        ("RULE:^CN=([^,]*)$/$1/", _NAME, None),
    ],
)
def test_the_first_rule_that_matches_the_whole_name_makes_the_user(
    rules: str, name: str, user: str | None
) -> None:
    """Section 2, Mapping rules."""
    assert MappingRules.parse(rules).user(name) == user


@pytest.mark.parametrize("rules", ["RULE:^CN=(.*?)$/$1", "nonsense", "RULE:^(/x/", "DEFAULTS"])
def test_a_rule_that_cannot_be_understood_is_refused(rules: str) -> None:
    with pytest.raises(KafkaError, match="mapping"):
        MappingRules.parse(rules)
