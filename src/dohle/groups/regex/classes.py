"""Sets of characters as RE2 has them: ranges, Perl, POSIX and Unicode classes, with case folding.

A set is asked for one character at a time and never spelled out, so that ``\\pL`` costs nothing.
Perl and POSIX classes are ASCII. Scripts are exact for ASCII, which is all that a topic name may
have; beyond, they go by the character's name.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

PERL_CLASSES: Mapping[str, str] = {"d": "09", "s": "\t\n\f\r  ", "w": "09AZ__az"}
POSIX_CLASSES: Mapping[str, str] = {
    "alnum": "09AZaz",
    "alpha": "AZaz",
    "ascii": "\x00\x7f",
    "blank": "\t\t  ",
    "cntrl": "\x00\x1f\x7f\x7f",
    "digit": "09",
    "graph": "!~",
    "lower": "az",
    "print": " ~",
    "punct": "!/:@[`{~",
    "space": "\t\r  ",
    "upper": "AZ",
    "word": "09AZ__az",
    "xdigit": "09AFaf",
}

_CATEGORIES = (
    "C Cc Cf Co Cs L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No "
    "P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So Z Zl Zp Zs"
)
_SCRIPTS = (
    "Arabic Armenian Avestan Balinese Bamum Batak Bengali Bopomofo Brahmi Braille Buginese Buhid "
    "Canadian_Aboriginal Carian Cham Cherokee Common Coptic Cuneiform Cypriot Cyrillic Deseret "
    "Devanagari Egyptian_Hieroglyphs Ethiopic Georgian Glagolitic Gothic Greek Gujarati Gurmukhi "
    "Han Hangul Hanunoo Hebrew Hiragana Imperial_Aramaic Inherited Inscriptional_Pahlavi "
    "Inscriptional_Parthian Javanese Kaithi Kannada Katakana Kayah_Li Kharoshthi Khmer Lao Latin "
    "Lepcha Limbu Linear_B Lisu Lycian Lydian Malayalam Mandaic Meetei_Mayek Mongolian Myanmar "
    "New_Tai_Lue Nko Ogham Ol_Chiki Old_Italic Old_Persian Old_South_Arabian Old_Turkic Oriya "
    "Osmanya Phags_Pa Phoenician Rejang Runic Samaritan Saurashtra Shavian Sinhala Sundanese "
    "Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le Tai_Tham Tai_Viet Tamil Telugu Thaana Thai "
    "Tibetan Tifinagh Ugaritic Vai Yi"
)
#: Characters that neither ``lower`` nor ``upper`` leads to: kelvin and angstrom sign, the long s.
_FOLDED_ONE_WAY: Mapping[str, str] = {"k": "\u212a", "s": "\u017f", "\u00e5": "\u212b"}


@dataclass(frozen=True, slots=True)
class Ranges:
    """Characters from the first to the second of each pair, both included."""

    pairs: tuple[tuple[str, str], ...]

    @staticmethod
    def spelled(bounds: str) -> Ranges:
        """Parse the bounds: "09az" is the digits and the lower-case letters."""
        return Ranges(tuple(zip(bounds[::2], bounds[1::2], strict=True)))

    def __contains__(self, char: str) -> bool:
        return any(low <= char <= high for low, high in self.pairs)


@dataclass(frozen=True, slots=True)
class Category:
    """The characters of a Unicode category, such as L or Lu."""

    name: str

    def __contains__(self, char: str) -> bool:
        category = unicodedata.category(char)
        # RE2 does not include unassigned characters.
        return category.startswith(self.name) and category != "Cn"


@dataclass(frozen=True, slots=True)
class Script:
    """The characters of a Unicode script, such as Greek."""

    name: str

    def __contains__(self, char: str) -> bool:
        if char.isascii():
            return self.name == ("Latin" if char.isalpha() else "Common")
        prefix = "CJK" if self.name == "Han" else self.name.replace("_", " ").upper()
        return unicodedata.name(char, "").startswith(prefix)


Characters: TypeAlias = Ranges | Category | Script
ANY = Ranges((("\0", chr(0x10FFFF)),))


def unicode_class(name: str) -> Characters | None:
    """Return the class that ``\\p{name}`` stands for."""
    if name == "Any":
        return ANY
    if name in _CATEGORIES.split():
        return Category(name)
    return Script(name) if name in _SCRIPTS.split() else None


@dataclass(frozen=True, slots=True, eq=False)
class CharClass:
    """Matches a character in one of the parts, or in none of them if ``negated``.

    Each part can be negated by itself: ``[\\D5]``. Case is folded before negation: ``(?i)[^k]``
    matches neither k nor K. Two are equal only if they are the same object.
    """

    #: A set, and whether it is inverted.
    parts: tuple[tuple[Characters, bool], ...]
    negated: bool = False
    fold_case: bool = False

    @property
    def size(self) -> int:
        """The number of ranges and named sets with which a character is compared."""
        return sum(
            len(characters.pairs) if isinstance(characters, Ranges) else 1
            for characters, _ in self.parts
        )

    def __contains__(self, char: str) -> bool:
        variants = fold_variants(char) if self.fold_case else (char,)
        found = any(
            any(variant in characters for variant in variants) != part_negated
            for characters, part_negated in self.parts
        )
        return found != self.negated


def fold_variants(char: str) -> tuple[str, ...]:
    """Return the characters that differ only in case, including itself."""
    folded = _fold(char)
    found = {char, folded, char.lower(), char.upper(), folded.upper(), folded.title()}
    found.add(_FOLDED_ONE_WAY.get(folded, char))
    return tuple(other for other in found if len(other) == 1 and _fold(other) == folded)


def _fold(char: str) -> str:
    folded = char.casefold()
    return folded if len(folded) == 1 else char
