from .audit_report import report_on_audit
from .content import Report
from .page import page_of, write_report
from .reporting import check_page, make_report, read_result, report
from .run_report import report_on_run
from .runs import Located, TrainedPolicy, TrainingRun, find_inputs, read_run, run_of_frontier

__all__ = [
    "Located",
    "Report",
    "TrainedPolicy",
    "TrainingRun",
    "check_page",
    "find_inputs",
    "make_report",
    "page_of",
    "read_result",
    "read_run",
    "report",
    "report_on_audit",
    "report_on_run",
    "run_of_frontier",
    "write_report",
]
