"""What a result file says, as numbers: rates, geometric means with bootstrap intervals, failures by reason.

Only this file decides what counts as works, whole, noisy; tables and the dashboard show what it gives.
"""

import collections
import math
import random
import re

#: what stands for torch.compile in PROTOCOL 6: a row of the list that is wrong or dies counts as half as fast
PENALTY = 0.5
NOISE = 0.05
SAMPLES = 2000
#: modes that are no way to run a program (programs.py)
QUESTIONS = ("tracers", "batches", "lengths", "warm")


def geometric_mean(values):
    return math.exp(sum(math.log(v) for v in values) / len(values)) if values else None


def interval(values, seed=0):
    """95 % bootstrap interval of the geometric mean over models, or None for fewer than three."""
    if len(values) < 3:
        return None
    logs, draw = [math.log(v) for v in values], random.Random(seed)
    means = sorted(sum(draw.choices(logs, k=len(logs))) / len(logs) for _ in range(SAMPLES))
    return math.exp(means[int(0.025 * SAMPLES)]), math.exp(means[int(0.975 * SAMPLES)])


def is_eligible(row):
    """Eager itself works and gives the same twice."""
    return row["status"] in ("ok", "crash", "timeout")


def programs_of(rows):
    """The rows that are programs in a mode, not questions asked of them (`QUESTIONS`)."""
    return [row for row in rows if row["mode"] not in QUESTIONS]


def column_of(row, column):
    return row["columns"].get(column, {})


def works(row, column="reprise"):
    return row["status"] == "ok" and column_of(row, column).get("status") == "pass"


def exits_of(row):
    """Side exits of a settled call of ours, or None. A call that runs no entry at all counts as one."""
    steady = column_of(row, "reprise").get("steady", {})
    return 1 if steady.get("runs") == 0 and steady.get("exits") == 0 else steady.get("exits")


def is_settled(row):
    steady = column_of(row, "reprise").get("steady")
    return bool(steady) and not steady["recordings"]


def is_whole(row):
    """A settled call of ours runs entries and nothing else.

    The row's own run says so, or the one that counts operators: its graphs are made for static sizes, so it may record
    at each call what the row's own run does not.
    """
    steady = column_of(row, "reprise").get("steady") or {}
    runs_nothing_else = not any(steady.get(key) for key in ("exits", "recordings", "plain_instructions"))
    counted = (row.get("capture") or {}).get("reprise") or {}
    return counted.get("is_whole", False) or bool(steady.get("runs") and runs_nothing_else)


def is_apart(ratio):
    """Two measurements of the same thing, one over the other, that differ by more than 5 %."""
    return abs(ratio - 1) > NOISE


def is_noisy(row):
    """The second eager column is off by too much in a process, or speed-ups in two processes are."""
    mine = speedups_of(row, "reprise")
    return any(map(is_apart, speedups_of(row, "eager-again"))) or bool(mine and is_apart(max(mine) / min(mine)))


def speedups_of(row, column):
    """How many times as fast as eager a column is, in each process that timed the row."""
    base, facts = column_of(row, "eager").get("ms"), column_of(row, column)
    return facts.get("speedups") or ([base / facts["ms"]] if base and "ms" in facts else [])


def notes_of(row):
    """What to know of a row's times, in a word or two."""
    again = column_of(row, "reprise").get("timed_recordings")
    return ", ".join(["noisy"] * is_noisy(row) + [f"recorded {again} x while timed"] * bool(again)) or None


def speedup(row, column="reprise", over="eager"):
    """Of one column over another: geometric means of what processes gave; None where the row has none."""
    base, mine = speedups_of(row, over), speedups_of(row, column)
    return geometric_mean(mine) / geometric_mean(base) if base and mine and works(row, column) else None


def agreement(rows, others, column="reprise"):
    """Programs timed in two runs, one dict each: `first` and `second` speed-up, `ratio`, and `notes` of both.

    They agree where the ratio is within NOISE of 1; what either run flags says nothing.
    """
    second = {(row["row"], row["mode"]): row for row in others}
    found = []
    for row in rows:
        other = second.get((row["row"], row["mode"]))
        a, b = speedup(row, column), speedup(other, column) if other else None
        if not a or not b:
            continue
        notes = ", ".join(sorted({note for note in (notes_of(row), notes_of(other)) if note}))
        verdict = "flagged" if notes else "apart" if is_apart(b / a) else "agree"
        found.append({"model": row["row"], "mode": row["mode"], "first": a, "second": b, "ratio": b / a,
                      "verdict": verdict, "notes": notes})  # fmt: skip
    return found


def operators(row, who):
    """(captured, all) of a row, or None: captured is what runs inside graphs, for both compilers."""
    found = row.get("capture") or {}
    total, mine = found.get("operators"), found.get(who)
    if not isinstance(total, int) or not mine or "captured" not in mine:
        return None
    return (min(mine["captured"], total) if who != "reprise" or works(row) else 0), total


def served(row):
    """(operators, all) of a row, or None: all of a call that one entry serves whole, also those that its steps call
    again between graphs, with PyTorch's kernels."""
    count = operators(row, "reprise")
    return (count[1], count[1]) if count and works(row) and is_whole(row) else count


def breaks_of(row, who):
    """Exits of ours, or breaks of TorchDynamo: what separates graphs."""
    if who == "reprise":
        return exits_of(row) if works(row) else None
    found = (row.get("capture") or {}).get("torch") or {}
    return found["graphs"] - 1 if found.get("graphs") else None


def _share(counts):
    """Of (some, all) pairs, by sum."""
    return sum(some for some, _ in counts) / sum(total for _, total in counts) if counts else None


def capture_facts(rows, who="reprise"):
    """The capture table's row for these results (inference): dict of counts and rates."""
    rows = [row for row in rows if is_eligible(row)]
    counts = list(filter(None, (operators(row, who) for row in rows)))
    wholes = list(filter(None, map(served, rows))) if who == "reprise" else []
    breaks = [breaks_of(row, who) for row in rows]
    known = [b for b in breaks if b is not None]
    graphs = [((row.get("capture") or {}).get(who) or {}).get("graphs") for row in rows]
    graphs = [g for g in graphs if g]
    return {
        "models": len(rows),
        "works": len(known),
        "operators": _share(counts),
        "served": _share(wholes),
        "graphs": sum(graphs) / len(graphs) if graphs else None,
        "none": sum(b <= 0 for b in known),
        "few": sum(1 <= b <= 9 for b in known),
        "many": sum(b >= 10 for b in known),
        "breaks": sum(max(b, 0) for b in known),
    }


def speed_facts(rows, column, over="eager"):
    """Geometric mean with its interval, n/N, and the penalised mean where what fails counts as half as fast."""
    rows = [row for row in rows if is_eligible(row)]
    found = [(row, speedup(row, column, over)) for row in rows]
    clean = [s for row, s in found if s and not is_noisy(row)]
    is_timed = any(s for _, s in found)
    timed = [(row, s) for row, s in found if column_of(row, over).get("ms") or row["status"] != "ok"]
    tried = [s or PENALTY for row, s in timed if column_of(row, column) or row["status"] != "ok"] if is_timed else []
    return {
        "mean": geometric_mean(clean),
        "interval": interval(clean),
        "counted": len(clean),
        "works": sum(s is not None for _, s in found),
        "models": len(rows),
        "noisy": sum(is_noisy(row) for row in rows),
        "penalised": geometric_mean(tried),
        "slower": sum(s < 0.95 for s in clean),
    }


def tracer_facts(rows, tracer):
    """(works, models) of one of PyTorch's older tracers; None where none was asked."""
    rows = [row for row in rows if row["mode"] == "tracers" and is_eligible(row)]
    return (sum(works(row, tracer) for row in rows), len(rows)) if rows else None


def size_facts(rows, what, column):
    """Recompiles of a compiler over sizes: dict of numbers, or None where it was not asked."""
    rows = [row for row in rows if row["mode"] == what and is_eligible(row)]
    asked = [row for row in rows if column_of(row, column) or row["status"] != "ok"]
    if not any(column_of(row, column) for row in asked):
        return None
    good = [column_of(row, column) for row in asked if works(row, column)]
    recompiles = sorted(facts["recompiles"] for facts in good)
    return {
        "models": len(asked),
        "works": len(good),
        "recompiles": sum(recompiles) / len(good) if good else None,
        "median": recompiles[len(good) // 2] if good else None,
        "most": recompiles[-1] if good else None,
        "again": sum(facts["recompiles_again"] for facts in good) / len(good) if good else None,
        "seconds": sum(f["recompiles_s"] + f["recompiles_again_s"] for f in good) / len(good) if good else None,
    }


def start_facts(rows, column):
    """Cold and warm starts of a column: seconds on average, and what of the cold start is left; None if not asked."""
    found = [column_of(row, column) for row in rows if row["mode"] == "warm" and works(row, column)]
    if not found:
        return None
    ratios = [max(facts["warm_s"], 1e-3) / facts["cold_s"] for facts in found if facts["cold_s"] > 1e-3]
    return {
        "models": len(found),
        "cold_s": sum(facts["cold_s"] for facts in found) / len(found),
        "warm_s": sum(facts["warm_s"] for facts in found) / len(found),
        "left": geometric_mean(ratios),
        "cache_mb": sum(facts["cache_mb"] for facts in found) / len(found),
    }


def cost_facts(rows, column):
    """What capture alone costs in steady state: geometric mean of a column with PyTorch's kernels over eager."""
    ratios = [1 / s for row in rows if not is_noisy(row) and (s := speedup(row, column))]
    return {"mean": geometric_mean(ratios), "interval": interval(ratios), "counted": len(ratios)}


def ablation_facts(rows, columns, whole="reprise"):
    """[(column, geometric mean over eager, models)] over the rows where all columns work and have times."""
    good = [
        row for row in rows
        if not is_noisy(row) and all(speedup(row, column) for column in (whole, *columns))
    ]  # fmt: skip
    return [(c, geometric_mean([speedup(row, c) for row in good]), len(good)) for c in (whole, *columns)]


def suites_of(rows):
    return sorted({row["suite"] for row in rows})


def failures(rows):
    """Reason -> list of (row, place): why programs stop being recorded, and what is wrong or dies."""
    found = collections.defaultdict(list)
    for row in (row for row in rows if row["mode"] != "tracers"):
        name = f"{row['row']} {row['mode']}"
        ours = column_of(row, "reprise")
        if row["status"] in ("crash", "timeout"):
            found[f"{row['status']}: {row.get('error', '')}"].append((name, ""))
        elif ours.get("status") in ("wrong", "raises"):
            found[f"{ours['status']}: {(ours['error'] or '')[:160]}"].append((name, ""))
        seen = set()
        for exit_ in ours.get("reasons", {}).get("exits", []):
            text = f"{exit_['code'] or exit_['kind']}: {generic(exit_['reason'])}"
            if exit_["count"] and text not in seen:
                seen.add(text)
                found[text].append((name, short_place(exit_["place"])))
        for text in ours.get("not_native", []):
            what = re.search(r" was (dissolved|planned again without .*?): (.*)", text)
            if what:
                found[f"region {what.group(1)}: {what.group(2)[:120]}"].append((name, ""))
    return dict(sorted(found.items(), key=lambda item: -len(item[1])))


def generic(reason):
    """A reason without the numbers of values in it."""
    return " ".join("%" if word.startswith("%") else word for word in reason.split())[:140]


def short_place(place):
    place = place.split("site-packages/")[-1].split("/bench/zoo/")[-1]
    return re.sub(r"^.*/lib/python3\.\d+/", "", place)


def headline(facts, rows):
    """The summary line: dict, in the order of bench/history.csv."""
    rows = programs_of(rows)
    inference = [row for row in rows if row["mode"] == "inference"]
    training = [row for row in rows if row["mode"] in ("training", "optimizer")]
    eligible = [row for row in rows if is_eligible(row)]
    ours = capture_facts(inference)
    peers = capture_facts(inference, "torch")

    def number(value, digits=3):
        return "" if value is None else round(value, digits)

    cold = [column_of(row, "reprise").get("cold_s") for row in rows]
    theirs = [column_of(row, "torch").get("cold_s") for row in rows]
    ratios = [a / b for a, b in zip(cold, theirs) if a and b]
    memory = [column_of(r, "eager").get("peak_mb", 0) / column_of(r, "reprise")["peak_mb"] for r in rows
              if column_of(r, "reprise").get("peak_mb")]  # fmt: skip
    spread = [abs(ratio - 1) for row in rows for ratio in speedups_of(row, "eager-again")]
    return {
        "date": facts.get("date", ""),
        "commit": facts.get("commit", ""),
        "machine": facts.get("machine", ""),
        "torch": facts.get("packages", {}).get("torch", ""),
        "rows": len(eligible),
        "works": number(sum(map(works, eligible)) / len(eligible) if eligible else None),
        "speedup_inference": number(speed_facts(inference, "reprise")["mean"]),
        "speedup_training": number(speed_facts(training, "reprise")["mean"]),
        "speedup_penalised": number(speed_facts(rows, "reprise")["penalised"]),
        "speedup_over_torch": number(speed_facts(rows, "reprise", "torch")["mean"]),
        "whole": number(ours["none"] / ours["models"] if ours["models"] else None),
        "operators": number(ours["operators"], 4),
        "exits": ours["breaks"],
        "torch_whole": number(peers["none"] / peers["models"] if peers["works"] else None),
        "torch_operators": number(peers["operators"], 4),
        "torch_breaks": peers["breaks"] if peers["works"] else "",
        "cold_s": number(sum(filter(None, cold)) / max(len(list(filter(None, cold))), 1)),
        "cold_ratio": number(geometric_mean(ratios)),
        "memory_ratio": number(geometric_mean([m for m in memory if m])),
        "noise": number(max(spread) if spread else None),
    }
