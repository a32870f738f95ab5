"""The live page: move devices and settings, and see plan, joules and learning answer."""
