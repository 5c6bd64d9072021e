"""`python -m decentral_dp` is the command `decentral-dp`."""

from decentral_dp.cli.main import main

main()
