"""The ``tenure`` command as the harness starts it without a zygote: a build of its own choice, else the product as it is."""

import os
import sys

from tenure.cli.app import run
from tests.chaos.builds import apply_build

if __name__ == "__main__":
    apply_build(os.environ)
    sys.exit(run(sys.argv[1:]))
