"""The process that runs cases: names in on stdin, rows (JSON) out on stdout. Started by tests.ops.run."""

import faulthandler
import json
import os
import sys
import traceback

import torch


def main():
    backend, sample_count, wait = sys.argv[1], int(sys.argv[2]), float(sys.argv[3] if len(sys.argv) > 3 else 0)
    # What operators print must not stand among the rows.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    faulthandler.enable()
    torch.set_num_threads(1)
    from tests.ops.cases import Case
    from tests.ops.check import EMPTY, check_case

    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        try:
            row = check_case(Case.from_name(line.strip()), backend, sample_count, wait)
        except Exception:  # noqa: BLE001
            row = {"case": line.strip(), "status": "harness", "text": traceback.format_exc()[-300:], "samples": 0}
            row.update(EMPTY)
        print(json.dumps(row), file=answers, flush=True)


if __name__ == "__main__":
    main()
