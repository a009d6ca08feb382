"""Run the command line as `python -m testbed`."""

from testbed.cli import main

main()
