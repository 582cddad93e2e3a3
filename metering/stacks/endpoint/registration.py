"""A registered endpoint: the folder that ``sut.package`` names for a remote stack.

In: ``manifest.json`` of that folder, whose digest every run records. Out: a checked
:class:`Registration` and a client for it. A token lies in a file beside it and appears in no
record. ``networks`` are the private networks an operator opened for this endpoint: a service that
takes registrations from customers writes that field itself and never takes it from them.

    {"schema": "ignition.endpoint.v1", "protocol": "kserve-v2" | "openai-chat",
     "url": "https://host[:port][/path]", "model": "NAME",
     "networks": ["10.1.0.0/16"], "token_file": "token",
     "limits": {"connect_s": 5, "read_s": 30, "request_s": 120, "answer_bytes": 67108864}}

The last three may be left out.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from metering.stacks.endpoint.address import Network, Target, parse_networks, parse_url
from metering.stacks.endpoint.client import Client, Limits
from metering.stacks.endpoint.failure import EndpointError, quoted

SCHEMA = "ignition.endpoint.v1"
MANIFEST = "manifest.json"
Protocol = Literal["kserve-v2", "openai-chat"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:-]{0,199}")
_WANTED = {"schema", "protocol", "url", "model"}
_OPTIONAL = {"networks", "token_file", "limits"}
_TOKEN_BYTES = 16 * 1024


@dataclass(frozen=True)
class Registration:
    protocol: str
    target: Target
    model: str
    networks: tuple[Network, ...]
    token: str = dataclasses.field(repr=False)
    limits: Limits

    def client(self) -> Client:
        return Client(self.target, networks=self.networks, limits=self.limits, token=self.token)


def load_registration(folder: Path, protocol: Protocol) -> Registration:
    """The registration in ``folder``, for a stack of ``protocol``. Raises EndpointError."""
    path = folder / MANIFEST
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise _wrong(f"cannot be read ({error})") from error
    if not isinstance(data, dict) or not _WANTED <= set(data) <= _WANTED | _OPTIONAL:
        raise _wrong(f"wanted the fields {sorted(_WANTED)}, perhaps {sorted(_OPTIONAL)}")
    if data["schema"] != SCHEMA or data["protocol"] != protocol:
        raise _wrong(
            f"got schema {data['schema']!r} and protocol {data['protocol']!r}, "
            f"wanted {SCHEMA!r} and {protocol!r}"
        )
    model, networks = data["model"], data.get("networks", [])
    if not isinstance(model, str) or not _NAME.fullmatch(model) or ".." in model:
        raise _wrong(f"model: got {quoted(str(model))!r}, wanted a model's name")
    if not isinstance(networks, list) or not all(isinstance(text, str) for text in networks):
        raise _wrong(f"networks: got {quoted(str(networks))!r}, wanted a list of texts")
    return Registration(
        protocol=protocol,
        target=parse_url(str(data["url"])),
        model=model,
        networks=parse_networks(networks),
        token=_token(folder, data.get("token_file")),
        limits=_limits(data.get("limits", {})),
    )


def _limits(data: Any) -> Limits:
    names = {field.name for field in dataclasses.fields(Limits)}
    if not isinstance(data, Mapping) or not set(data) <= names:
        raise _wrong(f"limits: wanted an object with fields of {sorted(names)}")
    if any(
        isinstance(value, bool) or not isinstance(value, int | float) for value in data.values()
    ):
        raise _wrong("limits: wanted numbers")
    return Limits(**data)


def _token(folder: Path, name: Any) -> str:
    if name is None:
        return ""
    if not isinstance(name, str) or Path(name).name != name:
        raise _wrong(f"token_file: got {quoted(str(name))!r}, wanted a file name of the folder")
    path = folder / name
    try:
        if path.stat().st_size > _TOKEN_BYTES:
            raise _wrong(f"token_file: {name} is larger than {_TOKEN_BYTES} bytes")
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        # The error of a decoder would quote what it could not decode.
        raise _wrong(f"token_file: cannot read {name} ({type(error).__name__})") from None


def _wrong(text: str) -> EndpointError:
    return EndpointError("form", f"endpoint {MANIFEST}: {text}")
