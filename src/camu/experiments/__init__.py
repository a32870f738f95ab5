"""What is built on runs: comparisons, statistics, claims."""
