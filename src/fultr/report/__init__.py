"""Reports: what a run or an audit found, as one HTML file that needs nothing else."""

from fultr.report.audit_report import report_on_audit
from fultr.report.content import Report
from fultr.report.page import page_of, write_report
from fultr.report.run_report import report_on_run
from fultr.report.runs import Run, TrainedPolicy, find_inputs, read_run, run_of_frontier

__all__ = [
    "Report",
    "Run",
    "TrainedPolicy",
    "find_inputs",
    "page_of",
    "read_run",
    "report_on_audit",
    "report_on_run",
    "run_of_frontier",
    "write_report",
]
