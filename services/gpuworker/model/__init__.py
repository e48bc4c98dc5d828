"""Model architectures as plain torch programs over ragged batches."""
