from .audit_report import report_on_audit
from .content import Report
from .page import page_of, write_report
from .run_report import report_on_run
from .runs import Located, Run, TrainedPolicy, find_inputs, read_run, run_of_frontier

__all__ = [
    "Located",
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
