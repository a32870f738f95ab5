"""Devices that reach nobody: their upload would take for ever, and no device could lead them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from camu.world.links import Links

DOMINATING_UPLINK = 1000.0  # times the median upload: such an uplink is as good as none


def hopeless_uplinks(links: Links) -> npt.NDArray[np.bool_]:
    """Devices whose upload takes more than 1000 times as long as the median one (K,)."""
    rate = links.rate_bps(links.power_watts, links.uplink_gain)
    return np.asarray(DOMINATING_UPLINK * rate < np.median(rate), dtype=np.bool_)


def out_of_reach(links: Links, min_link_snr_db: float) -> npt.NDArray[np.bool_]:
    """Devices that no other device could lead, with an uplink that is as good as none (K,).

    A device can be led by one whose own uplink will do, over a link of at least this SNR.
    """
    lost = hopeless_uplinks(links)
    able = np.flatnonzero(~lost)
    for device in np.flatnonzero(lost).tolist():
        snr_db = links.device_snr_db([device], able)[0]
        lost[device] = not (snr_db >= min_link_snr_db).any()
    return lost
