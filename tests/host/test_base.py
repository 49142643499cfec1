"""What the module was built for, and the options and log words of the core seen from Python."""

import sys
import unittest

from tests.host.native import C


class Base(unittest.TestCase):
    def test_the_module_says_which_python_it_was_built_for(self):
        self.assertEqual(C.built_for_python, sys.version_info[:2])

    def test_options_are_set_and_read_as_text(self):
        options = C.Options()
        options.set("numerics", "fast")
        self.assertEqual(options.get("numerics"), "fast")
        self.assertIsNone(options.get("no_such_option"))
        self.assertEqual(C.list_option_names()[0], "numerics")
        self.assertNotEqual(options, C.Options())

    def test_a_refused_option_raises_with_what_is_allowed(self):
        with self.assertRaisesRegex(ValueError, r"option validate is 'never'; expected first\|off\|always"):
            C.Options().set("validate", "never")

    def test_an_unknown_log_word_raises(self):
        with self.assertRaisesRegex(ValueError, "unknown log word 'exit'"):
            C.set_log_words("exit")
        C.set_log_words("exits")
        C.set_log_words("")


if __name__ == "__main__":
    unittest.main()
