"""Thousands of workers behind a router, on a virtual clock: to plan past one machine (docs/cluster-simulation.md).

A worker's memory is the kvmanager's own ``BlockSpace`` and the router is the scheduler's own; its batches are
coarser than the scheduler's, since nobody's tokens are kept, only their number.
"""
