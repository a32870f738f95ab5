"""The search for a scheme's best settings at a budget, on seeds and samples kept apart."""
