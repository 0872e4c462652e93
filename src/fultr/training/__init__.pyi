from .fair_ranker import FairRanker
from .frontier import FAIRNESS_WEIGHTS, Frontier, FrontierPoint, sweep
from .growing import stages_of_growing
from .limits import UnreachableLimitError
from .offsets import OffsetPolicy, fair_offsets
from .overlap import notes_on_overlap, overlap_with_training
from .paper_steps import PAPER
from .policy_files import read_policy_file
from .preparation import L2_OF_PAPER, L2_ONE_BY_ONE, NO_TWO_GROUPS, check_groups, has_two_groups
from .promises import UnsupportedLimitError
from .ranker import TrainableRanker
from .run_folder import CHECKPOINT_EVERY, CONFIG, RunFolder, results_of_run, writing
from .saving import load, load_ranker, save
from .settings import TREES
from .solving import ENTROPY_DECAY, LEAST_ENTROPY, StepReached, Watcher
from .tree_settings import TreeSettings

__all__ = [
    "CHECKPOINT_EVERY",
    "CONFIG",
    "ENTROPY_DECAY",
    "FAIRNESS_WEIGHTS",
    "L2_OF_PAPER",
    "L2_ONE_BY_ONE",
    "LEAST_ENTROPY",
    "NO_TWO_GROUPS",
    "PAPER",
    "TREES",
    "FairRanker",
    "Frontier",
    "FrontierPoint",
    "OffsetPolicy",
    "RunFolder",
    "StepReached",
    "TrainableRanker",
    "TreeSettings",
    "UnreachableLimitError",
    "UnsupportedLimitError",
    "Watcher",
    "check_groups",
    "fair_offsets",
    "has_two_groups",
    "load",
    "load_ranker",
    "notes_on_overlap",
    "overlap_with_training",
    "read_policy_file",
    "results_of_run",
    "save",
    "stages_of_growing",
    "sweep",
    "writing",
]
