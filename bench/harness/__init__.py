"""How the zoo is measured: one process a model, results as JSON lines (README.md)."""
