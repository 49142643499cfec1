"""What Reprise costs and gains, measured (README.md)."""

import os

# Read once, when torch loads its OpenMP. On a shared machine threads that spin at the end of a parallel loop cost more
# than what is measured.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
