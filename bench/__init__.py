"""Measurements of Reprise against eager PyTorch: `python -m bench.demo` and `python -m bench.overhead`."""
