"""`python -m fedsofim` is the command line."""

from fedsofim.cli.app import main

if __name__ == "__main__":
    main()
