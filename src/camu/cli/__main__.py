"""Lets `python -m camu.cli` run the command line."""

from camu.cli import main

main()
