"""`python -m rmrl.main_audit` is `rmrl audit`."""

import sys

from rmrl.cli import entry

main = entry("audit")

if __name__ == "__main__":
    sys.exit(main())
