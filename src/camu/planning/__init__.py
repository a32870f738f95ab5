"""Groups of devices, their contribution, what a round costs, and the plan made of them."""
