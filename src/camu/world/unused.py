"""Words on keys of the configuration that change nothing in a world."""

from __future__ import annotations

from camu.config import Config


def unused_keys(config: Config, stations: int) -> tuple[str, ...]:
    """A sentence for each key that was set and has no effect, with this many base stations."""
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
    return tuple(found)
