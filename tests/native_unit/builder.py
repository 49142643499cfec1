"""Traces by hand: a layer over entry_tests (module.cpp) in which tests say what a recorder would have recorded."""

import dis

from tests.native_unit.build import load

native = load()

NOTHING = ...  # no object
PRE_KINDS = {
    "Arg", "Const", "InstanceDict", "DictItem", "DictItemByIdentity", "SequenceItem", "Length", "CellContents", "Slot",
    "FunctionField", "MethodField", "Unary", "Binary", "Compare", "Identical", "Contains", "GetItem", "Truth", "Call",
    "Format", "JoinStrings", "Tuple", "Slice",
}  # fmt: skip
PUSH, PUSH_NULL_FIRST, DROP, PUSH_VALUE = range(4)
ADD, MULTIPLY = 0, 5  # NB_* numbers
CLOSURE, DEFAULTS, KW_DEFAULTS, CODE = range(4)
EXIT_KINDS = {0: "none", 1: "guard", 2: "end", 3: "error"}


class Trace:
    """What a recording of `function` would have left; ids are ints."""

    def __init__(self, function, slot_count=None, unit=0):
        code = function.__code__
        slots = len(code.co_varnames) + len(code.co_cellvars) + len(code.co_freevars)
        self.spec = dict(
            items=[],
            frame_states=[],
            snapshots=[],
            tensor_metas=[],
            type_versions=[],
            type_lookups=[],
            function=function,
            code=code,
            globals=function.__globals__,
            unit=unit,
            slot_count=slots if slot_count is None else slot_count,
            result=-1,
            end_snapshot=-1,
            end_text="",
        )
        self.pre = []
        self.function = function
        self.constants = {}

    # ---- items

    def node(self, kind, *operands, object=NOTHING, n=0, pre=None, snapshot=-1):
        if pre is None:
            pre = kind in PRE_KINDS and all(o < 0 or self.pre[o] for o in operands)
        self.pre.append(pre)
        self.spec["items"].append(("node", kind, tuple(operands), object, n, pre, snapshot))
        return len(self.pre) - 1

    def guard(self, value, fact, object=NOTHING, n=0, snapshot=-1):
        self.spec["items"].append(("guard", value, fact, object, n, snapshot))

    def item_count(self):
        return len(self.spec["items"])

    def arg(self, slot):
        return self.node("Arg", n=slot)

    def const(self, object):
        key = id(object)
        if key not in self.constants:
            self.constants[key] = self.node("Const", object=object)
        return self.constants[key]

    def attribute(self, owner, name, live=NOTHING):
        """self.name of an object with an instance dict; `live`: the object, to state its type first."""
        if live is not NOTHING:
            self.guard(owner, "Type", type(live))
        value = self.node("DictItem", self.node("InstanceDict", owner), object=name)
        self.guard(value, "Present")
        return value

    def call(self, function, *operands, snapshot=-1, kwnames=NOTHING, kind="TensorCall"):
        return self.node(kind, self.const(function), *operands, object=kwnames, snapshot=snapshot)

    def meta(self, value, tensor):
        self.spec["tensor_metas"].append(tensor)
        self.guard(value, "TensorMeta", n=len(self.spec["tensor_metas"]) - 1)

    def type_version(self, type, names=None):
        """names: all look-ups that the trace relies on; None: unknown."""
        self.spec["type_versions"].append((type, names is not None))
        self.spec["type_lookups"] += [(type, name) for name in names or ()]

    # ---- exits

    def frame(
        self, place, slots, function=None, caller=-1, mode=PUSH, mode_value=-1, function_value=-1, generator_value=-1
    ):
        """place: (unit where it goes on, unit of the current instruction), see `before` and `behind`."""
        function = function or self.function
        self.spec["frame_states"].append(dict(
            function=function if function_value < 0 else None, function_value=function_value, code=function.__code__,
            unit=place[0], op_unit=place[1], slots=tuple(slots), mode=mode, mode_value=mode_value,
            generator_value=generator_value, caller=caller,
        ))  # fmt: skip
        return len(self.spec["frame_states"]) - 1

    def snapshot(self, frame, handled=-1, exact=True, item=None):
        self.spec["snapshots"].append((frame, self.item_count() if item is None else item, handled, exact))
        return len(self.spec["snapshots"]) - 1

    # ---- the end

    def ret(self, value):
        self.spec["result"] = value
        return self

    def exit(self, snapshot, text="the end"):
        self.spec["end_snapshot"] = snapshot
        self.spec["end_text"] = text
        return self

    def native(self):
        return native.make_trace(self.spec)

    def verify(self):
        return native.verify_trace(self.native())

    def liveness(self):
        return native.liveness(self.native())

    def entry(self):
        return Entry(native.make_entry(self.spec))


class Entry:
    def __init__(self, capsule):
        self.capsule = capsule

    def check(self, *args):
        return native.check(self.capsule, list(args))

    def __call__(self, *args):
        self.exits = []
        return native.run(self.capsule, list(args), self.exits)

    def last_exit(self):
        """(kind, guard, snapshot) of the exit that the last call took, or None."""
        if not self.exits:
            return None
        ((kind, guard, _, snapshot),) = self.exits
        return EXIT_KINDS[kind], guard, snapshot

    def statistics(self):
        return native.statistics(self.capsule)

    def failure(self):
        return native.describe_failure(self.capsule)

    def explain(self, *args):
        return native.explain(self.capsule, list(args))

    def text(self):
        return native.print_entry(self.capsule)


class Dispatcher:
    def __init__(self, entries):
        self.entries = entries
        self.capsule = native.make_dispatcher([entry.capsule for entry in entries])

    def candidates(self, *args):
        return native.find_candidates(self.capsule, list(args))

    def look_up(self, *args):
        return native.look_up(self.capsule, list(args))


# ---- places in bytecode


def instructions(function):
    """(opname, first unit, own unit, unit behind it) with prefixes and pairs folded as Reprise decodes them."""
    found = []
    start = None
    rows = [i for i in dis.get_instructions(function) if i.opname != "CACHE"]
    for row, following in zip(rows, rows[1:] + [None], strict=True):
        start = row.offset // 2 if start is None else start
        if row.opname in ("EXTENDED_ARG", "KW_NAMES", "PRECALL"):
            continue
        behind = following.offset // 2 if following else len(function.__code__.co_code) // 2
        found.append((row.opname, start, row.offset // 2, behind))
        start = None
    return found


def before(function, opname, nth=0):
    """The place in front of the nth instruction with this name."""
    rows = [row for row in instructions(function) if row[0] == opname]
    return rows[nth][1], rows[nth][2]


def behind(function, opname, nth=0):
    rows = [row for row in instructions(function) if row[0] == opname]
    return rows[nth][3], rows[nth][2]
