"""Ten requests in 256 slots of KV memory: one long stretch for each against pages on demand, step by step."""
