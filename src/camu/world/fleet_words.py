"""What owners call the columns of a fleet: synonyms in several languages, and units."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable
from typing import NamedTuple

SYNONYMS: dict[str, str] = {
    "id": "id name device deviceid serial serialnumber serialno sn uuid nodeid node gateway "
    "gatewayid seriennummer seriennr geraet geraeteid geraetenummer kennung numerodeserie appareil "
    "identifiant numerodeserie dispositivo numeroserie",
    "latitude": "lat latitude gpslat breite breitengrad latitud",
    "longitude": "lon lng long longitude gpslon gpslng laenge laengengrad longitud",
    "x": "x",
    "y": "y",
    "z": "z height altitude elevation hoehe altitud hauteur altura",
    "distance_m": "distance entfernung abstand distancia",
    "samples": "samples records readings messwerte datensaetze anzahlmesswerte anzahldatensaetze "
    "echantillons mesures muestras registros",
    "cpu_hz": "cpu cpuhz cpuclock clock takt taktfrequenz cputakt frequence reloj",
    "power_watts": "power txpower transmitpower sendeleistung leistung puissance potencia",
    "max_power_watts": "maxpower maxtxpower maximalleistung",
    "rssi_dbm": "rssi signal signalstrength rsrp empfang empfangspegel pegel signalstaerke",
    "snr_db": "snr sinr",
    "gain_db": "gain pathgain",
    "battery_joules": "battery batterycapacity akku batterie akkukapazitaet bateria accu "
    "batteriekapazitaet",
    "harvest_watts": "harvest",
    "solar_watts_peak": "solarwattspeak solar solarpower solarpanel pv panel solarmodul solaire",
    "idle_watts": "idle idlepower leerlauf ruheleistung",
    "static_watts": "static staticpower",
    "sleep_watts": "sleep sleeppower schlaf schlafleistung",
    "link": "link technology radio funk funktechnik verbindung anbindung technologie enlace",
    "rate_bps": "rate bps datarate bitrate throughput datenrate durchsatz debit velocidad",
    "board": "board hardware plattform platform geraetetyp",
    "region": "region site location standort ort gebiet zone lieu sitio",
}

KNOWN_COLUMNS = (*SYNONYMS, "cycles_per_sample", "capacitance")


class Unit(NamedTuple):
    """A unit that a column may be written in, and how it becomes that of camu."""

    columns: tuple[str, ...]
    change: Callable[[float], float]


def _times(factor: float) -> Callable[[float], float]:
    return lambda value: value * factor


_ENERGY = ("battery_joules",)
_POWER = (
    *("power_watts", "max_power_watts", "harvest_watts", "idle_watts", "static_watts"),
    *("sleep_watts", "solar_watts_peak"),
)
_LENGTH = ("x", "y", "z", "distance_m")
UNITS: dict[str, Unit] = {
    **{
        name: Unit(_ENERGY, _times(factor))
        for name, factor in {
            "j": 1.0,
            "joule": 1.0,
            "joules": 1.0,
            "kj": 1e3,
            "mwh": 3.6,
            "wh": 3600.0,
            "kwh": 3.6e6,
        }.items()
    },
    **{
        name: Unit(_POWER, _times(factor))
        for name, factor in {"w": 1.0, "watt": 1.0, "watts": 1.0, "mw": 1e-3, "kw": 1e3}.items()
    },
    **{
        name: Unit(("solar_watts_peak",), _times(factor))
        for name, factor in {"wp": 1.0, "kwp": 1e3}.items()
    },
    "dbm": Unit((*_POWER, "rssi_dbm"), lambda value: 10.0 ** ((value - 30.0) / 10.0)),
    "db": Unit(("snr_db", "gain_db"), _times(1.0)),
    **{
        name: Unit(("cpu_hz",), _times(factor))
        for name, factor in {"hz": 1.0, "khz": 1e3, "mhz": 1e6, "ghz": 1e9}.items()
    },
    **{
        name: Unit(("rate_bps",), _times(factor))
        for name, factor in {
            "bps": 1.0,
            "bit/s": 1.0,
            "bits/s": 1.0,
            "kbps": 1e3,
            "kbit/s": 1e3,
            "mbps": 1e6,
            "mbit/s": 1e6,
        }.items()
    },
    **{name: Unit(_LENGTH, _times(factor)) for name, factor in {"m": 1.0, "km": 1e3}.items()},
    "deg": Unit(("latitude", "longitude"), _times(1.0)),
    "grad": Unit(("latitude", "longitude"), _times(1.0)),
    "°": Unit(("latitude", "longitude"), _times(1.0)),
}
_BRACKETS = re.compile(r"^(.*?)[\s_]*[(\[]\s*([^()\[\]]+?)\s*[)\]]$")
_BEHIND = re.compile(r"^(.*?)(?:[\s_]+in)?[\s_]+(\S+)$")
_COLUMNS = {word: name for name, words in SYNONYMS.items() for word in words.split()}

# Cells that say that something is not known, and that a device is on mains power.
UNKNOWN = frozenset(("-", "--", "?", "n/a", "na", "n.a.", "none", "null", "unknown", "unbekannt"))
MAINS = frozenset(("mains", "grid", "ac", "usb", "netz", "netzteil", "strom", "secteur", "inf"))
TOTALS = frozenset(["total", "sum", "summe", "gesamt", "gesamtsumme", "somme", "suma", "totals"])


def plain(name: str) -> str:
    """A name without case, accents, spaces and marks; German umlauts are written out."""
    text = name.lower().strip()
    for letter, two in (("ä", "ae"), ("ö", "oe"), ("ü", "ue"), ("ß", "ss")):
        text = text.replace(letter, two)
    text = unicodedata.normalize("NFKD", text)
    return "".join(letter for letter in text if letter.isalnum() and letter.isascii())


def column_of(header: str) -> tuple[str, Unit | None, str] | None:
    """The column that a header means, its unit if it is another one, and the unit's name.

    None if it means no column.
    """
    if name := _COLUMNS.get(plain(header)):
        return name, None, ""
    for pattern in (_BRACKETS, _BEHIND):
        if found := pattern.match(header.strip()):
            name, unit = _COLUMNS.get(plain(found[1])), UNITS.get(found[2].lower())
            if name and unit and name in unit.columns:
                same = math.isclose(unit.change(1.0), 1.0) or (name, found[2].lower()) == (
                    "rssi_dbm",
                    "dbm",
                )
                return name, None if same else unit, found[2]
    return None
