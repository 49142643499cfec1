"""Tables of a result file."""


def print_report(path):
    pass
