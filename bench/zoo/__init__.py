"""The zoo: the models that Reprise is measured on, as rows of tables (README.md)."""

from bench.zoo.rows import Missing, Row, all_rows, find_row, make_case, skipped_rows, small_rows

__all__ = ["Missing", "Row", "all_rows", "find_row", "make_case", "skipped_rows", "small_rows"]
