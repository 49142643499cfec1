"""tests/aot runs in a process of its own: it loads a second copy of the engine, which takes torch's dispatch key, and
replaces functions of torch. `pytest tests` leaves it out; `pytest tests/aot` runs it."""

import pathlib

_OWN_PROCESS = pathlib.Path(__file__).parent / "aot"


def pytest_ignore_collect(collection_path, config):
    if collection_path != _OWN_PROCESS and _OWN_PROCESS not in collection_path.parents:
        return None
    asked = [pathlib.Path(str(argument).split("::")[0]).resolve() for argument in config.args]
    if any(path == _OWN_PROCESS or _OWN_PROCESS in path.parents for path in asked):
        return None
    return True
