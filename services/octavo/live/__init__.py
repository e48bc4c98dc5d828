"""The paper's comparisons on a real model through the real services, in pools small enough to bind."""
