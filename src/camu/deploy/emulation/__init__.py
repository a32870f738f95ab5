"""A run whose transfers cross real sockets, at the rates that the world gives each link."""
