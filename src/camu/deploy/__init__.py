"""The same plan on real nodes: a Flower deployment with TLS and node authentication."""
