"""Run the command line as `python -m fultr`."""

from fultr.cli.main import main

main()
