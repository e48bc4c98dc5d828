"""Memory spaces beside ``BlockSpace``: what the paper compares paging with (§6.1), behind the same ``apply``."""
