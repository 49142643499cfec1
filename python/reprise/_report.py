"""What `reprise.explain` returns."""

import collections

# The counters worth a line when they are not zero; the first ones are always shown.
_ALWAYS_SHOWN = ("calls", "entry_runs", "recordings", "side_exits")
_MAX_GUARDS = 20


class Explanation:
    """A snapshot of one compiled callable. `str()` is a readable report; the parts are attributes.

    name: of the callable.
    places: list of dicts, one for each boundary where entries start: file, line, function, unit (0: the call), why,
        attempts, last_failure, is_blacklisted, misses, entries. An entry: serial, why, runs, returns, items, steps,
        size_bytes, guards (texts with source paths), last_guard_failure, regions (texts), exits. An exit: place
        ("file:line in function"), kind ("end", "guard", "region", "error"), reason, code, hint, count.
    counters: dict of counts (docs/troubleshooting.md); seconds: dict of phase to seconds.
    notes: what the reader should know about the settings.
    result: what the explained call returned.
    """

    def __init__(self, report, settings):
        self.name = report["name"]
        self.places = report["places"]
        self.counters = report["counters"]
        self.seconds = report["seconds"]
        self.notes = _make_notes(settings, self.counters)
        self.result = None
        self._texts = report["counter_texts"]

    @classmethod
    def make_empty(cls, name, note):
        """For what is not compiled."""
        explanation = cls({"name": name, "places": [], "counters": {}, "seconds": {}, "counter_texts": {}}, {})
        explanation.notes = [note]
        return explanation

    @property
    def entries(self):
        """All entries, in the order they were recorded."""
        return sorted((e for place in self.places for e in place["entries"]), key=lambda e: e["serial"])

    @property
    def exits(self):
        """The exits of all entries that were met: where a trace ends, and failed guards. As in the recording, so the
        count of a trace's end may be 0."""
        return [x for entry in self.entries for x in entry["exits"] if x["count"] or x["kind"] == "end"]

    def __repr__(self):
        return f"<reprise.Explanation of {self.name}: {len(self.entries)} entries, {len(self.exits)} exits>"

    def __str__(self):
        lines = [f"{self.name}: {_count(len(self.entries), 'entry', 'entries')}"]
        lines += [f"  note: {note}" for note in self.notes]
        for place in self.places:
            lines += self._describe_place(place)
        lines += self._describe_counters()
        if self.seconds:
            lines.append("seconds: " + ", ".join(f"{phase} {value:.4f}" for phase, value in self.seconds.items()))
        return "\n".join(lines)

    def _describe_place(self, place):
        where = "the call" if place["unit"] == 0 else f"unit {place['unit']}"
        is_branch = place["unit"] < 0  # at no boundary of one function
        lines = [place["why"] if is_branch else f"{place['file']}:{place['line']} in {place['function']} ({where})"]
        if place["is_blacklisted"]:
            lines.append(f"  given up after {_count(place['attempts'], 'recording')}: {place['last_failure']}")
        elif place["last_failure"]:
            lines.append(f"  last recording failed: {place['last_failure']}")
        elif not place["entries"]:
            lines.append(f"  no entry; wanted because: {place['why']}")
        for entry in place["entries"]:
            lines += self._describe_entry(entry)
        return lines

    def _describe_entry(self, entry):
        end = "up to the return" if entry["returns"] else "up to an exit"
        lines = [
            f"  entry {entry['serial']}: {_count(entry['runs'], 'run')}, {_count(len(entry['guards']), 'guard')}, "
            f"{_count(entry['steps'], 'step')}, {end}; recorded because: {entry['why']}"
        ]
        lines += [f"    guard {guard}" for guard in entry["guards"][:_MAX_GUARDS]]
        if len(entry["guards"]) > _MAX_GUARDS:
            lines.append(f"    ... and {len(entry['guards']) - _MAX_GUARDS} more guards")
        if entry["last_guard_failure"]:
            lines.append(f"    last refused a call because of: {entry['last_guard_failure']}")
        for region, count in collections.Counter(entry["regions"]).items():
            lines.append(f"    {region}" if count == 1 else f"    {count} times: {region}")
        quiet = [e for e in entry["exits"] if e["kind"] == "guard" and not e["count"]]
        lines += [f"    checked at {e['place']}: {e['reason']}; it never failed" for e in quiet[:_MAX_GUARDS]]
        for exit_ in entry["exits"]:
            if exit_["kind"] == "guard" and not exit_["count"]:
                continue
            where = f" at {exit_['place']}" if exit_["place"] else ""
            lines.append(f"    exit{where}, taken {_count(exit_['count'], 'time')}: {exit_['reason']}")
            if exit_["hint"]:
                lines.append(f"      {exit_['code']}: {exit_['hint']}")
        return lines

    def _describe_counters(self):
        shown = [name for name, count in self.counters.items() if count or name in _ALWAYS_SHOWN]
        return ["counts:"] + [f"  {self.counters[name]:>8}  {self._texts[name]}" for name in shown] if shown else []


def _count(number, word, plural=None):
    return f"{number} {word if number == 1 else plural or word + 's'}"


def _make_notes(settings, counters):
    notes = []
    backend = settings.get("backend", "native")
    if backend not in ("native", "eager", "aot_eager"):
        name = backend if isinstance(backend, str) else getattr(backend, "__name__", type(backend).__name__)
        notes.append(f"backend {name}: it gets each run of recorded PyTorch calls as a torch.fx.GraphModule")
    if counters.get("unsupported_calls"):
        notes.append("calls of this kind of callable (builtin, generator or async function) run as they are")
    return notes
