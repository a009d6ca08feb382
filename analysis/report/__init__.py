"""One report to send: summary.csv, table.csv, figures/ and report.html, a single file that needs nothing else.

`write` does it all; `page` gathers what the page says, `runs` what it says of each run, `series` what its viewer draws, `html` puts it
together with page.html, page.css and page.js.
"""

from analysis.report.write import Report, write_report

__all__ = ["Report", "write_report"]
