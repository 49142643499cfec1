"""Decoded code: every opcode of the running Python is known, instructions tile the code, jumps have targets."""

import dis
import gc
import importlib
import types
import unittest

from tests.host.build import load

frame_tests = load()

MODULES = """argparse ast asyncio.base_events collections contextlib dataclasses datetime decimal difflib doctest
email.message enum functools html.parser inspect json.encoder logging pathlib pickle re._parser shutil statistics string
subprocess tarfile textwrap threading tokenize traceback types typing unittest.mock urllib.parse uuid weakref
xml.dom.minidom zipfile"""
# What is left to CPython on purpose.
HANDED_OVER = {
    "IMPORT_STAR",
    "PRINT_EXPR",
    "INTERPRETER_EXIT",
    "ENTER_EXECUTOR",
    "RESERVED",
    "EXIT_INIT_CHECK",
    "DO_TRACING",
}
# Read together with the instruction behind them.
PREFIXES = {"EXTENDED_ARG", "CACHE", "KW_NAMES", "PRECALL"}


def list_code(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from list_code(constant)


def list_library_code():
    for name in MODULES.split():
        with open(importlib.import_module(name).__file__, encoding="utf-8") as file:
            yield from list_code(compile(file.read(), name, "exec"))


class Decode(unittest.TestCase):
    def test_every_opcode_is_known(self):
        opcodes = {name: number for name, number in dis.opmap.items() if number < 256}
        unknown = []
        for name in opcodes:
            if name.startswith("INSTRUMENTED_") or name in HANDED_OVER | PREFIXES:
                continue
            template = (lambda: None).__code__
            body = bytes([opcodes[name], 0, *[opcodes["CACHE"], 0] * 12, opcodes["NOP"], 0])
            decoded = frame_tests.decode(template.replace(co_code=body, co_consts=(None,), co_names=("a",)))
            if not isinstance(decoded, str) and decoded[0][0] == "HandOver":
                unknown.append(name)
        # The intrinsics 0 do not exist; others of them are executed.
        self.assertEqual([name for name in unknown if not name.startswith("CALL_INTRINSIC")], [])

    def test_instructions_tile_the_code(self):
        count = 0
        for code in list_library_code():
            decoded = frame_tests.decode(code)
            self.assertIsInstance(decoded, list, code)
            unit = 0
            for _, _, start, own, behind, target, pops, _ in decoded:
                self.assertEqual(start, unit)
                self.assertTrue(start <= own < behind)
                self.assertLess(target, len(decoded))
                self.assertTrue(0 <= pops <= code.co_stacksize, (code, start, pops))
                unit = behind
                count += 1
            self.assertEqual(unit * 2, len(code.co_code))
        self.assertGreater(count, 100_000)

    def test_jumps_go_where_dis_says(self):
        for code in list_library_code():
            decoded = frame_tests.decode(code)
            by_unit = {own: (name, target) for name, _, _, own, _, target, _, _ in decoded}
            for instruction in dis.get_instructions(code):
                if instruction.opcode not in dis.hasjrel or instruction.offset // 2 not in by_unit:
                    continue
                name, target = by_unit[instruction.offset // 2]
                place = decoded[target][2] * 2
                if name == "ForIter":  # goes on behind the END_FOR
                    self.assertGreaterEqual(place, instruction.argval)
                    self.assertLessEqual(place, instruction.argval + 4)
                    continue
                while dis.opname[code.co_code[instruction.argval]] == "EXTENDED_ARG" and place < instruction.argval:
                    place += 2
                self.assertEqual(place, instruction.argval, (code, instruction))

    def test_specialised_and_instrumented_code_decodes_alike(self):
        def function(items):
            total = 0
            for item in items:
                total += item
            return total

        before = frame_tests.decode(function.__code__)
        for _ in range(100):
            function([1, 2, 3])
        copied = function.__code__.replace()
        self.assertEqual(frame_tests.decode(function.__code__), before)
        self.assertEqual(frame_tests.decode(copied), before)

    def test_a_client_dies_with_its_code(self):
        space = {}
        exec("def function(): pass", space)
        frame_tests.attach(space["function"].__code__)
        deleted = frame_tests.deleted()
        space.clear()
        gc.collect()
        self.assertEqual(frame_tests.deleted(), deleted + 1)


if __name__ == "__main__":
    unittest.main()
