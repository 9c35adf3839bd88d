"""`python -m rmrl.main_doctor` is `rmrl doctor`."""

import sys

from rmrl.cli import entry

main = entry("doctor")

if __name__ == "__main__":
    sys.exit(main())
