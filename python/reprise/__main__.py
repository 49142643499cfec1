"""`python -m reprise`: what this build is for, what was found, and the options."""

import platform
import sys

from . import __version__, _native


def main():
    torch = sys.modules.get("torch")
    print(f"reprise {__version__}")
    print(f"running on Python {platform.python_version()}, torch {torch.__version__ if torch else 'not installed'}")
    if _native.C is None:
        print(f"not usable: {_native.reason}")
        return 1
    version = ".".join(map(str, _native.C.built_for_python))
    print(f"built for Python {version}, torch {_native.C.built_for_torch or 'none'}")
    print(f"extension module {_native.C.__file__}")
    print()
    print("options (reprise.compile(options={...}), REPRISE_<NAME>):")
    print(_native.C.Options().describe())
    print("words of REPRISE_LOG:")
    print(_native.C.describe_log_words())
    return 0


if __name__ == "__main__":
    sys.exit(main())
