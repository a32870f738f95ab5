"""What owners call the columns of a fleet, links and boards: synonyms in several languages, units.

A header is read without case, accents, marks and small words ("No. of", "Nombre d'"), with its unit
in brackets or behind it.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

# The first names are the surest: where two headers mean a column, the earlier one is taken.
SYNONYMS: dict[str, str] = {
    "id": "id, serial number, serial, sn, device id, asset id, asset tag, asset, dev eui, "
    "device eui, eui, uuid, imei, mac address, mac, node id, gateway id, sensor id, device, node, "
    "gateway, appliance, hostname, device name, gateway name, name, seriennummer, serien nr, "
    "inventarnummer, geräte id, gerätenummer, gerät, kennung, gerätename, numéro de série, "
    "identifiant, adresse mac, appareil, capteur, nom, número de serie, identificador, "
    "dirección mac, dispositivo, equipo, nombre, serienummer, apparaat, apparaat id, mac adres, "
    "naam, matricola, numero di serie, indirizzo mac, apparecchio, nome, nr, no",
    "latitude": "lat, latitude, gps lat, gps latitude, breite, breitengrad, geo breite, latitud, "
    "breedtegraad, latitudine",
    "longitude": "lon, lng, long, longitude, gps lon, gps lng, gps longitude, länge, längengrad, "
    "geo länge, longitud, lengtegraad, longitudine",
    "x": "x",
    "y": "y",
    "z": "z, height, altitude, elevation, höhe, altitud, hauteur, altura, hoogte, quota",
    "distance_m": "distance, entfernung, abstand, distancia, afstand, distanza",
    "samples": "samples, records, readings, measurements, sample, messwerte, datensätze, "
    "messungen, échantillons, mesures, enregistrements, muestras, registros, mediciones, metingen, "
    "monsters, campioni, misure, registrazioni",
    "cpu_hz": "cpu, cpu hz, cpu clock, cpu frequency, cpu speed, clock, clock speed, takt, "
    "taktfrequenz, cpu takt, fréquence, fréquence cpu, reloj, frecuencia, frecuencia cpu, "
    "frecuencia de cpu, kloksnelheid, processor, prozessor, processeur, procesador, processore, "
    "frequenza, frequenza cpu",
    "power_watts": "tx power, transmit power, radio power, sendeleistung, "
    "puissance d'émission, potencia de transmisión, zendvermogen, potenza di trasmissione, power, "
    "leistung, puissance, potencia, vermogen, potenza",
    "max_power_watts": "max power, max tx power, maximalleistung, max sendeleistung, "
    "puissance max, potencia máxima, max vermogen, potenza massima",
    "rssi_dbm": "rssi, signal strength, signal, signal level, rsrp, empfangspegel, empfang, pegel, "
    "signalstärke, niveau de signal, intensidad de señal, señal, nivel de señal, signaalsterkte, "
    "segnale, livello segnale",
    "snr_db": "snr, sinr",
    "gain_db": "gain, path gain",
    "battery_joules": "battery capacity, battery energy, battery, akkukapazität, "
    "batteriekapazität, akku, batterie, capacité batterie, capacité de la batterie, "
    "capacidad de batería, capacidad de la batería, batería, accucapaciteit, batterijcapaciteit, "
    "accu, batterij, capacità batteria, batteria, capacity, kapazität",
    "harvest_watts": "harvest, harvested power",
    "solar_watts_peak": "solar watts peak, solar, solar power, solar panel, pv, panel, solarmodul, "
    "solarpanel, panneau solaire, solaire, panneau, panel solar, zonnepaneel, pannello solare",
    "idle_watts": "idle, idle power, leerlauf, ruheleistung, consommation au repos, "
    "consumo en reposo, ruststroom, rustvermogen",
    "static_watts": "static, static power",
    "sleep_watts": "sleep, sleep power, schlaf, schlafleistung, veille, consommation en veille, "
    "consumo en suspensión, slaapvermogen",
    "link": "link, link type, connectivity, connection, network type, radio technology, "
    "technology, radio, network, bearer, funk, funktechnik, funktechnologie, verbindung, "
    "anbindung, konnektivität, technologie radio, technologie, connectivité, connexion, réseau, "
    "tecnología, enlace, conectividad, conexión, red, verbinding, netwerk, collegamento, "
    "connettività, rete, tecnologia",
    "rate_bps": "rate, bps, data rate, bit rate, throughput, datenrate, durchsatz, débit, "
    "velocidad, velocidad de datos, datasnelheid, velocità",
    "board": "board, hardware, hardware model, platform, device model, model, plattform, "
    "gerätetyp, modell, carte, modèle, matériel, placa, plataforma, modelo, bord, scheda, modello",
    "region": "region, site, location, site name, building, plant, room, area, town, city, "
    "standort, ort, werk, gebäude, halle, gebiet, zone, lieu, ville, bâtiment, emplacement, sitio, "
    "ubicación, ciudad, planta, locatie, plaats, vestiging, sede, luogo, posizione",
}
# Columns that are no columns of a fleet, but say something of others.
HELPERS: dict[str, str] = {
    "place": "gps, coordinates, gps coordinates, gps position, geo, geolocation, lat lon, lat lng, "
    "lat long, latitude longitude, position, koordinaten, gps koordinaten, coordonnées, "
    "coordonnées gps, coordenadas, coordenadas gps, coördinaten, gps coördinaten, coordinate, "
    "coordinate gps",
    "volts": "voltage, battery voltage, nominal voltage, spannung, nennspannung, tension, tensión, "
    "voltaje, spanning, tensione",
    "spreading": "spreading factor, sf, spreizfaktor, facteur d'étalement, "
    "factor de ensanchamiento",
}

KNOWN_COLUMNS = (*SYNONYMS, "cycles_per_sample", "capacitance")
LABELS = ("label", "class", "klasse", "classe", "clase", "etiqueta", "étiquette")


class Unit(NamedTuple):
    """A unit that a column may be written in, and how it becomes that of camu."""

    columns: tuple[str, ...]
    change: Callable[[float], float]


def _times(factor: float) -> Callable[[float], float]:
    return lambda value: value * factor


def _of(columns: tuple[str, ...], **factors: float) -> dict[str, Unit]:
    return {name: Unit(columns, _times(factor)) for name, factor in factors.items()}


_POWER = (
    *("power_watts", "max_power_watts", "harvest_watts", "idle_watts", "static_watts"),
    *("sleep_watts", "solar_watts_peak"),
)
_EARTH = ("latitude", "longitude")
CHARGE = {"mah": 1e-3, "ah": 1.0}  # in Ah: an energy once the voltage is known
_RATES = {"bit/s": 1.0, "bits/s": 1.0, "kbit/s": 1e3, "kb/s": 1e3, "mbit/s": 1e6, "mb/s": 1e6}
UNITS: dict[str, Unit] = {
    **_of(("battery_joules",), j=1.0, joule=1.0, joules=1.0, kj=1e3, mwh=3.6, wh=3600.0, kwh=3.6e6),
    **{name: Unit(("battery_joules",), _times(3600.0 * ah)) for name, ah in CHARGE.items()},
    **_of(_POWER, w=1.0, watt=1.0, watts=1.0, mw=1e-3, kw=1e3),
    **_of(("solar_watts_peak",), wp=1.0, kwp=1e3),
    "dbm": Unit((*_POWER, "rssi_dbm"), lambda value: 10.0 ** ((value - 30.0) / 10.0)),
    "db": Unit(("snr_db", "gain_db"), _times(1.0)),
    **_of(("cpu_hz",), hz=1.0, khz=1e3, mhz=1e6, ghz=1e9),
    **_of(("rate_bps",), bps=1.0, kbps=1e3, mbps=1e6),
    **{name: Unit(("rate_bps",), _times(factor)) for name, factor in _RATES.items()},
    **_of(("x", "y", "z", "distance_m"), m=1.0, km=1e3),
    **_of(_EARTH, deg=1.0, grad=1.0, grados=1.0),
    **dict.fromkeys(("°", "degrés"), Unit(_EARTH, _times(1.0))),
}
CAMU_UNITS = {
    "battery_joules": "J", "cpu_hz": "Hz", "rate_bps": "bit/s", "rssi_dbm": "dBm",
    **dict.fromkeys(_POWER, "W"), **dict.fromkeys(("x", "y", "z", "distance_m"), "m"),
}  # fmt: skip

# Cells that say that something is not known, that a device is on mains power, or that are totals.
_UNKNOWN = (
    "-|--|---|\u2013|\u2014|?|n/a|na|n.a.|n.v.|#n/a|#nv|none|null|unknown|unbekannt|k.a.|"
    "k. a.|n.d.|nd|s/d|s.d.|inconnu|desconocido|onbekend|sconosciuto|tbd|not available|not set"
)
UNKNOWN = frozenset(_UNKNOWN.split("|"))
_MAINS = (
    "mains, mains power, grid, ac, ac power, ac powered, usb, poe, external, line power, wired, "
    "netz, netzteil, netzbetrieb, netzstrom, strom, secteur, sur secteur, red, red eléctrica, "
    "corriente, netstroom, lichtnet, netvoeding, rete, rete elettrica, corrente, inf"
)
_TOTALS = (
    "total, totals, grand total, sum, summe, gesamt, gesamtsumme, somme, total général, suma, "
    "total general, totaal, som, totale, somma"
)
_ARTICLES = (
    "n no nr of the number numero nombre anzahl aantal numeri count de d du des la le l les el los "
    "las der die das den del di della van het in en"
)
_SMALL = frozenset(_ARTICLES.split())
_BRACKETS = re.compile(r"^(.*?)[\s_]*[(\[]\s*([^()\[\]]+?)\s*[)\]]$")
_BEHIND = re.compile(r"^(.*?)(?:[\s_]+in)?[\s_]+([^\s_]+)$")


def plain(name: str) -> str:
    """A name without case, accents, spaces and marks; German umlauts are written out."""
    return "".join(tokens(name))


def tokens(name: str) -> list[str]:
    """The words of a name without case, accents and marks."""
    text = re.sub(r"([a-z])(?=[A-Z][a-z])", r"\1 ", name).lower()
    for letter, two in (("ä", "ae"), ("ö", "oe"), ("ü", "ue"), ("ß", "ss")):
        text = text.replace(letter, two)
    marks = unicodedata.normalize("NFKD", text)
    return re.findall("[a-z0-9]+", "".join(one for one in marks if not unicodedata.combining(one)))


def _key(name: str) -> str:
    """A header without small words, unless there are no others."""
    words = tokens(name)
    return "".join([one for one in words if one not in _SMALL] or words)


@cache
def _columns() -> dict[str, tuple[str, int]]:
    """What headers mean, and how sure that is; 0 is surest."""
    found: dict[str, tuple[str, int]] = {}
    for column, phrases in {**SYNONYMS, **HELPERS}.items():
        for rank, phrase in enumerate(phrases.split(",")):
            found.setdefault(_key(phrase), (column, rank))
    return found


@cache
def _known(phrases: str) -> frozenset[str]:
    return frozenset(plain(one) for one in phrases.split(","))


def is_mains(cell: str) -> bool:
    """Whether a cell says that a device is on mains power."""
    return plain(cell) in _known(_MAINS)


def is_total(cell: str) -> bool:
    """Whether a cell names a row of totals."""
    return plain(cell) in _known(_TOTALS)


class Meaning(NamedTuple):
    """What a header means."""

    column: str
    unit: Unit | None  # None: that of camu, or none is written
    written: str  # the unit; "" if none is written
    rank: int  # 0 is surest


def column_of(header: str) -> Meaning | None:
    """What a header means; None if it means no column."""
    if found := _columns().get(_key(header)):
        return Meaning(found[0], None, "", found[1])
    for pattern in (_BRACKETS, _BEHIND):
        match = pattern.match(header.strip())
        if match is None or (found := _columns().get(_key(match[1]))) is None:
            continue
        column, rank = found
        if column == "volts" and match[2].lower() in ("v", "volt"):
            return Meaning(column, None, match[2], rank)
        unit = UNITS.get(match[2].lower())
        if unit and column in unit.columns:
            return Meaning(column, None if is_own(unit, column) else unit, match[2], rank)
    return None


def unit_of(header: str, column: str) -> tuple[Unit | None, str]:
    """The unit in a header that is said to be this column, and as it is written."""
    for pattern in (_BRACKETS, _BEHIND):
        match = pattern.match(header.strip())
        unit = UNITS.get(match[2].lower()) if match else None
        if match and unit and column in unit.columns:
            return None if is_own(unit, column) else unit, match[2]
    return None, ""


def label_of(header: str) -> str | None:
    """The name of the label that a header counts ("Klasse ok" is ok); None if it counts none."""
    found = re.match(r"^(\w+?)[\s_:.-]+(\S.*)$", header.strip())
    if found and plain(found[1]) in {plain(one) for one in LABELS}:
        return found[2].strip()
    return None


def is_own(unit: Unit, column: str) -> bool:
    """Whether this is the unit that camu has for the column."""
    return column == "rssi_dbm" or (math.isclose(unit.change(1.0), 1.0) and unit is not UNITS["ah"])
