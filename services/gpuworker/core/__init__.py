"""What a worker keeps between steps, and the checks of a step; no tensors."""
