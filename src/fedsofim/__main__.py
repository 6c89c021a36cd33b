"""`python -m fedsofim` is the command line."""

from fedsofim.cli import main

if __name__ == "__main__":
    main()
