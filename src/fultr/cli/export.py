"""`fultr export`: a saved policy in a format of others."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

import fultr.serving
from fultr.cli.options import Json, UnusedSeed
from fultr.cli.output import print_json, say
from fultr.cli.policy_file import policy_file


class ExportFormat(StrEnum):
    """What a policy is exported as."""

    ONNX = "onnx"
    LIGHTGBM = "lightgbm"


def export(
    policy: Annotated[Path, typer.Argument(help="A saved policy, or the folder of a run.")],
    out: Annotated[
        Path, typer.Option(help="Where to write the model; the card of an ONNX model goes beside it.")
    ],
    to: Annotated[ExportFormat, typer.Option("--to", help="The format.")] = ExportFormat.ONNX,
    _seed: UnusedSeed = 0,
    json: Json = False,
) -> None:
    """Write a policy as an ONNX model with a card in JSON that says what it is, or trees as LightGBM's text.

    The model takes the features of the candidates of a request and returns their scores; the order of the
    features, their scaling and the temperature are within. Rankings are then to be drawn from the scores, as
    the card says.

    \b
    Example:
      fultr export run --to onnx --out policy.onnx
      fultr export run --to lightgbm --out policy.txt
    """
    if to is ExportFormat.LIGHTGBM:
        written = fultr.serving.export_lightgbm(policy_file(policy), out)
        if json:
            print_json({"file": str(written)})
        say(f"wrote {written}")
        return
    model, card = fultr.serving.export_onnx(policy_file(policy), out)
    if json:
        print_json({"file": str(model), "card": str(card)})
    say(f"wrote {model} and {card}")
