"""Words on keys of the configuration that change nothing in a world."""

from __future__ import annotations

from camu.config import Config

_OF_PANELS = ("solar_share", "latitude", "start_day", "start_hour")


def unused_keys(config: Config, stations: int, panels: bool) -> tuple[str, ...]:
    """A sentence for each key that was set and has no effect.

    The fleet has so many base stations, and solar panels or none.
    """
    fleet, radio, found = config.fleet, config.radio, []
    if fleet.pause_seconds and fleet.speed_mps is None:
        found.append(
            f"fleet.pause_seconds = {fleet.pause_seconds:g} has no effect without fleet.speed_mps"
        )
    usual = type(radio).model_fields["rate_margin_db"].default
    if radio.rate_margin_db != usual and radio.knows_channels:
        found.append(
            f"radio.rate_margin_db = {radio.rate_margin_db:g} has no effect where channels are "
            "known; set radio.pilot_symbols or radio.csi_correlation"
        )
    if radio.cells != "one" and stations == 1:
        found.append(
            f'radio.cells = "{radio.cells}" has no effect with one base station; give several in '
            "fleet.base_station_file"
        )
    for name in () if panels else _OF_PANELS:
        if (value := getattr(fleet, name)) != type(fleet).model_fields[name].default:
            found.append(f"fleet.{name} = {value:g} has no effect without solar_watts_peak")
    return tuple(found)
