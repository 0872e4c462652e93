"""What can be asked of the service, as OpenAPI 3.1."""

from __future__ import annotations

from typing import Any

import msgspec

from fultr import __version__
from fultr.serving.requests import ClickAnswer, ClickRequest, Problem, RankAnswer, RankRequest

SUMMARIES = {
    ("post", "/rank"): "Rank candidates, and record what is shown.",
    ("post", "/clicks"): "Record clicks on items of a ranking; the same click twice counts once.",
    ("get", "/metrics"): "What the service counts, for Prometheus.",
    ("get", "/healthz"): "Whether the process is alive.",
    ("get", "/readyz"): "Whether requests are welcome and events are recorded.",
    ("get", "/monitor"): "A page with the exposure and merit of what was shown.",
}
BODIES: dict[str, tuple[type, type]] = {
    "/rank": (RankRequest, RankAnswer),
    "/clicks": (ClickRequest, ClickAnswer),
}
PROBLEMS = {
    "401": "The token is missing or wrong.",
    "404": "No such ranking.",
    "408": "The request took too long to arrive.",
    "410": "Too late for clicks on the ranking.",
    "413": "The request is too large.",
    "422": "The request cannot be used; the error names what is wrong.",
    "429": "Too many requests.",
    "503": "Events cannot be recorded now; send it again later.",
}
ONLY_CLICKS = ("404", "410", "503")


def openapi(with_token: bool = False) -> dict[str, Any]:
    """Return the description of the service."""
    types = [one for pair in BODIES.values() for one in pair] + [Problem]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    refs = dict(zip(types, schemas, strict=True))

    def content(kind: type) -> dict[str, Any]:
        return {"content": {"application/json": {"schema": refs[kind]}}}

    paths: dict[str, Any] = {}
    for (method, path), summary in SUMMARIES.items():
        operation: dict[str, Any] = {"summary": summary, "responses": {"200": {"description": "Done."}}}
        if path in BODIES:
            asked, answered = BODIES[path]
            operation["requestBody"] = {"required": True, **content(asked)}
            operation["responses"]["200"] |= content(answered)
            operation["responses"] |= {
                status: {"description": text, **content(Problem)}
                for status, text in PROBLEMS.items()
                if path == "/clicks" or status not in ONLY_CLICKS
            }
        paths.setdefault(path, {})[method] = operation
    about: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "fultr", "version": __version__},
        "paths": paths,
        "components": {"schemas": components},
    }
    if with_token:
        about["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        about["security"] = [{"token": []}]
    return about
