"""The board: schemes ranked by a protocol fixed beforehand, each tuned with equal effort."""
