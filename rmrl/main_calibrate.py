"""`python -m rmrl.main_calibrate` is `rmrl calibrate`."""

import sys

from rmrl.cli import entry

main = entry("calibrate")

if __name__ == "__main__":
    sys.exit(main())
