"""Read a results folder and draw it: load, metrics, summary, figures, report.

Needs only the files, no root and no testbed; docs/results.md is the contract.
"""

from analysis.errors import ResultsError
from analysis.load import load
from analysis.report import write_report
from analysis.summary import summarise

__all__ = ["ResultsError", "load", "summarise", "write_report"]
