"""The command `pando`, as `python -m pando` or the script that the package installs."""

import signal
import sys

from ._pando import command_line


def main() -> None:
    # The command runs outside the interpreter, which would notice Ctrl-C only afterwards.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(command_line(["pando", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
