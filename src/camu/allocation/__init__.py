"""Problem P1 of the paper as data, and its solvers: exact with certificate, PPO, latency gap."""
