"""What arguments of the library are called on the command line, so that errors of commands name options."""

from __future__ import annotations

from collections.abc import Mapping

from fultr.errors import InputError

OPTIONS = {
    "fairness_weight": "--lambda",
    "fairness_weights": "--lambdas",
    "max_disparity": "--max-disparity",
    "min_utility": "--min-utility",
    "confidence": "--confidence",
    "fairness": "--fairness",
    "folds": "--folds",
    "l2": "--l2",
    "hidden": "--hidden",
    "leaves": "--leaves",
    "rounds": "--rounds",
    "learning_rate": "--learning-rate",
    "min_rows": "--min-rows",
    "column_share": "--column-share",
    "row_share": "--row-share",
    "monotone": "--monotone",
    "interactions": "--interactions",
    "top_k": "--top-k",
    "depth": "--depth",
    "clip": "--clip",
    "evidence": "--evidence",
    "valid": "--valid",
    "valid_share": "--valid-share",
    "entropy_weight": "--entropy-weight",
    "protocol": "--protocol",
    "seeds": "--seeds",
    "eps_plus": "--eps-plus",
    "eps_minus": "--eps-minus",
    "position_bias": "--eta or --bias",
    "beyond": "--tail power of fultr propensity",
    "with_complete_lists": "--complete-lists",
    "with_tail": "--tail power of fultr propensity",
    "noise": "--eps-plus and --eps-minus",
    "threshold": "--relevant-from",
    "method": "--methods",
    "stochastic": "--deterministic",
    "max_features": "--max-features of fultr convert",
}
"""The option for each argument that several commands, or a command under another name, have."""

COLUMNS_TOO = ("features", "items", "column", "out", "json")
"""Options whose name is that of something else in an error."""


def in_option_names(error: InputError, of_command: Mapping[str, str]) -> InputError:
    """Return an error about an argument by the name of its option; others are left as they are.

    Parameters
    ----------
    error
        What is wrong. With a file or a row, it is about data and not about an argument.
    of_command
        The options that the command has, by the names of its arguments.
    """
    option = None
    if error.column is not None and error.file is None and error.row is None:
        own = None if error.column in COLUMNS_TOO else of_command.get(error.column)
        option = own or OPTIONS.get(error.column)
    return error if option is None else error.of_option(option)
