"""``python -m octavo.in_process``."""

from octavo.in_process.program import main

main()
