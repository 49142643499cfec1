"""Plain text tables and CSV from lists of dicts."""

import csv


def text_table(rows, columns):
    """Aligned text; `columns` maps a key of the rows to its heading. Numbers are right-aligned, None is a dash."""

    def cell(value):
        if value is None:
            return "-"
        if isinstance(value, float):
            return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
        return str(value)

    texts = [[cell(row.get(key)) for key in columns] for row in rows]
    heads = list(columns.values())
    widths = [max([len(head)] + [len(line[i]) for line in texts]) for i, head in enumerate(heads)]
    is_number = [all(isinstance(row.get(key), (int, float, type(None))) for row in rows) for key in columns]

    def line(cells):
        padded = (c.rjust(w) if n else c.ljust(w) for c, w, n in zip(cells, widths, is_number))
        return "  ".join(padded).rstrip()

    return "\n".join([line(heads), "  ".join("-" * w for w in widths)] + [line(t) for t in texts])


def write_csv(path, rows):
    """All keys of all rows become columns, in order of first appearance."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    with open(path, "w", newline="") as out:
        writer = csv.DictWriter(out, columns, restval="")
        writer.writeheader()
        writer.writerows(rows)
