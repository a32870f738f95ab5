"""Words on devices of a fleet file that reach nobody."""

from __future__ import annotations

from camu.errors import InputError
from camu.world.links import DOMINATING_UPLINK

_MOST = 0.5  # of a fleet may reach nobody


def left_out_words(path: str, names: tuple[str, ...], count: int, typed: bool) -> tuple[str, ...]:
    """A sentence that names the devices, of so many, that reach nobody; most of them is refused."""
    if not names:
        return ()
    if len(names) > _MOST * count:
        raise InputError(
            f"{path}: {len(names)} of {count} devices reach nobody; place your base stations with "
            "fleet.base_station_file, give the measured uplinks (rssi_dbm, snr_db), or keep such "
            "devices with fleet.unreachable=keep"
        )
    why = f"an upload would take more than {DOMINATING_UPLINK:g} times as long as the median one"
    if typed:
        why = f"the SNR is below the lowest of the link, or {why}"
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    one = len(names) == 1
    return (
        f"{path}: device{'' if one else 's'} {', '.join(names[:5])}{more} reach"
        f"{'es' if one else ''} nobody and {'is' if one else 'are'} left out: {why}, and no device "
        "could lead; check the position or the measured uplink, or keep "
        f"{'it' if one else 'them'} with fleet.unreachable=keep",
    )
