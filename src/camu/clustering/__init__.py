"""Dual-segment clustering: affinity propagation on links, then on data inside each cluster."""

from camu.clustering.dual_segment import Cluster, Clustering, cluster_devices

__all__ = ["Cluster", "Clustering", "cluster_devices"]
