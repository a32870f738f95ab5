"""The board: schemes ranked by a protocol that is fixed beforehand, each tuned with equal effort."""
