"""``python -m sweepkit``: the command line of this very Python."""

from sweepkit.cli import main

if __name__ == "__main__":
    main(prog_name="sweepkit")
