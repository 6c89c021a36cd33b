"""`python -m fedsofim` is the command line."""

from fedsofim.cli import main

main()
