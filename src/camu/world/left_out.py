"""Words on devices of a fleet file that reach nobody."""

from __future__ import annotations

from camu.world.links import DOMINATING_UPLINK


def left_out_words(path: str, names: tuple[str, ...], typed: bool) -> tuple[str, ...]:
    """A sentence that names the devices that reach nobody."""
    if not names:
        return ()
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
