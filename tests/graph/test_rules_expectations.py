"""The expectations of the shape rules are what this PyTorch gives."""

from tests.graph import rule_cases


def test_the_expectations_are_those_of_this_pytorch():
    text, failures = rule_cases.make_text()
    assert failures == []
    assert text == (rule_cases.HERE / "rule_expectations.txt").read_text()
