"""What Reprise costs and gains, measured (README.md)."""

import os

# Read once, when torch loads its OpenMP. Threads that spin at the end of a parallel loop cost a shared machine more than
# what they measure.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
