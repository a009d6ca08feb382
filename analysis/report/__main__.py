"""Write the report of a results folder where only `analysis` is installed: python -m analysis.report FOLDER."""

import sys

from analysis.report.write import main

sys.exit(main(sys.argv[1:]))
