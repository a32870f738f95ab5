"""Block error rates of Sionna at the SNRs of camu's NR table; prints CSV lines for `compare.py`.

Run it with a Python that has sionna-no-rt 2.2 and torch: what,link,parameter,stations,value.
"""

from __future__ import annotations

import torch
from sionna.sys import PHYAbstraction

MCS = (4, 6, 8, 11, 13, 15, 18, 20, 22, 24, 26, 28)  # of CQI 4 to 15, TS 38.214 table 5.1.3.1-1
BLOCK_BITS = 2000


def main() -> None:
    """The SNR at which a tenth of the blocks fails, by CQI, found by bisection."""
    physical = PHYAbstraction()
    for cqi, mcs in enumerate(MCS, start=4):
        low, high = -10.0, 40.0
        for _ in range(30):
            middle = 0.5 * (low + high)
            error = physical.get_bler(
                torch.tensor([mcs]),
                torch.tensor([1]),
                torch.tensor([1]),
                torch.tensor([BLOCK_BITS]),
                torch.tensor([10.0 ** (middle / 10.0)]),
            )
            low, high = (middle, high) if float(error) > 0.1 else (low, middle)
        print(f"threshold_db,nr,{cqi},1,{high:.4f}", flush=True)


if __name__ == "__main__":
    main()
