"""`python -m rmrl.main_report` is `rmrl report`."""

import sys

from rmrl.cli import entry

main = entry("report")

if __name__ == "__main__":
    sys.exit(main())
