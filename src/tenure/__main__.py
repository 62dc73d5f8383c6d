"""``python -m tenure`` is the ``tenure`` command."""

from tenure.cli import main

if __name__ == "__main__":
    main()
