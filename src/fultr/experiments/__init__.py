"""The paper's experiments, rerun: its figures, its claims, and a verdict on each of them."""
