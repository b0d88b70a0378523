"""Reads a checkpoint as docs/formats/checkpoint.md describes it, with none of the program's code."""

import json
import re


def newest(folder):
    """The newest checkpoint's manifest meta and the bytes of its section "weights"."""
    found = []
    for entry in folder.iterdir():
        match = re.fullmatch(r"inc-(\d+)-step-(\d+)", entry.name)
        if match:
            found.append(((int(match[1]), int(match[2])), entry))
    checkpoint = max(found)[1]
    body = json.loads((checkpoint / "manifest.json").read_text())["checkpoint"]
    section = next(s for s in body["sections"] if s["name"] == "weights")
    weights = b""
    for file in section["files"]:
        weights += (checkpoint / file["name"]).read_bytes()[4096:4096 + file["bytes"]]
    assert len(weights) == section["bytes"]
    return body["meta"], weights
