"""Code that several tests share: small configurations, fleets made by hand, slow references."""
