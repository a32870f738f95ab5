"""Cells of a fleet's file as people write them: numbers, degrees, names of links and of boards."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import NamedTuple

from camu.world.boards import built_in
from camu.world.fleet_words import CHARGE, UNITS, Unit, is_own, plain
from camu.world.link_types import LINK_NAMES

_SPACES = "\u00a0\u202f\u2009 '\u2019"
_SPACED = re.compile(rf"[+-]?\d{{1,3}}([{_SPACES}]\d{{3}})+([.,]\d+)?")
_DIVIDED = re.compile(r"[+-]?[1-9]\d{0,2}([.,]\d{3})+")  # 1.200 or 1,200, which may be thousands
_COMMA = re.compile(r"[+-]?(\d*|\d{1,3}(\.\d{3})+),\d+")
_POINT = re.compile(r"[+-]?(\d*|\d{1,3}(,\d{3})+)\.\d+")
_WITH_UNIT = re.compile(r"([+-]?[\d.,]+(?:e[+-]?\d+)?)\s*([a-zA-Z°][a-zA-Z/]*)")
_DEGREES = re.compile(
    r"([NSEW]?)\s*([+-]?\d+(?:[.,]\d+)?)\s*[°d]?\s*(?:(\d+(?:[.,]\d+)?)\s*['′’m]\s*)?"
    r"(?:(\d+(?:[.,]\d+)?)\s*(?:\"|″|''|s))?\s*([NSEW]?)",
    re.IGNORECASE,
)
_PAIR = re.compile(
    r"[(\[]?\s*(-?\d+\.\d+|-?\d+|-?\d+,\d+)\s*(?:[,;/]\s*|\s+)(-?\d+(?:[.,]\d+)?)\s*[)\]]?"
)
NUMBER = re.compile(r"[+-]?[\d.,]+(e[+-]?\d+)?", re.IGNORECASE)
NOMINAL_VOLTS = 3.7  # of a lithium cell


class Style(NamedTuple):
    """How a column's numbers are written."""

    comma: bool  # a decimal comma
    thousands: str  # what divides thousands, "" for nothing


PLAIN = Style(False, "")


def is_comma(cell: str) -> bool:
    """Whether a number has a decimal comma for sure."""
    return _COMMA.fullmatch(cell) is not None and _DIVIDED.fullmatch(cell) is None


def is_point(cell: str) -> bool:
    """Whether a number has a decimal point for sure."""
    return _POINT.fullmatch(cell) is not None and _DIVIDED.fullmatch(cell) is None


def style_of(cells: Iterable[str], anywhere: bool, commas_divide: bool, count: bool) -> Style:
    """How a column is written.

    `anywhere` says whether numbers of other columns have a decimal comma, `commas_divide` whether
    commas divide the columns of the file, `count` whether the numbers are whole.
    """
    given = [cell for cell in cells if "," in cell or "." in cell]
    own, points = any(map(is_comma, given)), any(map(is_point, given))
    if own or (anywhere and not points):
        return Style(True, ".")
    if points or commas_divide or count:
        return Style(False, ",")
    # Only 12,000: where commas do not divide columns, they are in numbers.
    return Style(any("," in cell for cell in given), "")


def number(text: str, style: Style) -> str:
    """A number as Python reads it; other text stays as it is."""
    text = text.replace("\u2212", "-")  # a minus sign
    if _SPACED.fullmatch(text):
        text = re.sub(f"[{_SPACES}]", "", text)
    divided = _DIVIDED.fullmatch(text) and not (style.thousands == "." and "," in text)
    if divided and style.thousands and style.thousands in text:
        return text.replace(style.thousands, "")
    if style.comma and _COMMA.fullmatch(text):
        return text.replace(".", "").replace(",", ".")
    if not style.comma and style.thousands and _POINT.fullmatch(text):
        return text.replace(",", "")
    return text


def degrees(text: str) -> str:
    """A latitude or longitude in decimal degrees, from 48°8'6"N or 48.135° N."""
    found = _DEGREES.fullmatch(text)
    if found is None or text.strip("+-.,0123456789") == "" or (found[1] and found[5]):
        return text
    whole, minutes, seconds = (
        float((one or "0").replace(",", ".")) for one in found.group(2, 3, 4)
    )
    value = abs(whole) + minutes / 60 + seconds / 3600
    south = (found[1] or found[5]).upper() in ("S", "W") and whole >= 0
    return repr(-value if south or whole < 0 else value)


def place(text: str) -> tuple[str, str]:
    """Latitude and longitude of a cell that has both; two empty cells if it has not."""
    found = _PAIR.fullmatch(text)
    return (found[1].replace(",", "."), found[2].replace(",", ".")) if found else ("", "")


def with_unit(text: str, column: str) -> tuple[str, Unit | None, str]:
    """A number and the unit behind it, as 37 Wh; without one the text as it is."""
    found = _WITH_UNIT.fullmatch(text)
    unit = UNITS.get(found[2].lower()) if found else None
    if found is None or unit is None or column not in unit.columns:
        return text, None, ""
    return found[1], None if is_own(unit, column) else unit, found[2]


def in_unit(text: str, unit: Unit | None, written: str, volts: float) -> str:
    """A number in camu's unit; what is none stays as it is."""
    if unit is None:
        return text
    try:
        value = unit.change(float(text))
    except (ValueError, OverflowError):
        return text
    return repr(value * volts if written.lower() in CHARGE else value)


_LINKS = {
    "wifi-n": "wlan, wifi, wifi 4, wifi 5, wlan ac, 802.11n, 802.11ac, 802.11, 80211bgn",
    "wifi-ax": "wifi 6, wifi 6e, wlan ax, 802.11ax",
    "802.15.4": "zigbee, thread, ieee 802.15.4, 6lowpan",
    "nb-iot": "nb, nbiot, cat nb1, cat nb2, lte nb, narrowband iot",
    "lte": "4g, 4g lte, lte 4g, lte m, ltem, cat m1, lte cat m1, lte cat 1, lte cat 4, cellular, "
    "mobilfunk",
    "nr": "5g, 5g nr, 5g sa, 5g nsa",
    "ethernet": "lan, wired, ethernet poe, poe, fast ethernet, gigabit ethernet, kabel, filaire, "
    "cable, rj45, glasfaser, fiber, fibre",
    "lora-sf9": "lora, lorawan",  # a spreading factor in the middle
}
_SPREADING = re.compile(r"(?:lora|lorawan)?(?:868|eu868|433|915)?sf(\d+)(?:bw125|125)?")


@cache
def _links() -> Mapping[str, str]:
    known = {plain(one): name for name, words in _LINKS.items() for one in words.split(",")}
    return {**known, **{plain(name): name for name in LINK_NAMES}}


def link_of(text: str, spreading: str = "") -> str | None:
    """A link type by its name, however it is written ("LoRa SF9"); None if there is none."""
    if text in LINK_NAMES:
        return text
    key = plain(text)
    if spreading and (not key or key in ("lora", "lorawan")):
        key = "sf" + plain(spreading).removeprefix("sf")
    if factor := _SPREADING.fullmatch(key):
        key = f"lorasf{factor[1]}"
    found = _links().get(key)
    return found if found in LINK_NAMES else None


_BOARDS = {
    "pi-zero-2w": "pi zero 2, pi zero 2 w, zero 2 w",
    "pi-3b-plus": "pi 3, pi 3b, pi 3b+, pi 3b plus",
    "pi-4": "pi 4, pi 4b, cm4, compute module 4, pi 400",
    "pi-5": "pi 5, pi 5b, cm5, compute module 5, pi 500",
    "esp32-s3": "esp32, esp32 wroom, esp32 devkit, esp32 s3 devkit, esp32 s3 wroom",
}
_NO_PART = re.compile(
    r"\b(raspberry|nvidia|espressif|model|board|rev\b.*|\d+ ?gb|ram|kit|developer)\b"
)


def _board_key(text: str) -> str:
    """A board's name without its maker, memory and revision."""
    return plain(_NO_PART.sub(" ", text.lower())).replace("rpi", "pi")


@cache
def _boards() -> Mapping[str, str]:
    known = {_board_key(one): name for name, words in _BOARDS.items() for one in words.split(",")}
    for name, board in built_in().items():
        known |= {_board_key(name): name, _board_key(board.title): name}
    return known


def board_of(text: str) -> str | None:
    """A board by its name, however it is written ("Raspberry Pi 4 B"); None if there is none."""
    if not text or text in built_in() or text.endswith(".toml"):
        return text
    return _boards().get(_board_key(text))
