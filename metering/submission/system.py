"""The system description of a submission, from the registry's record of the machine.

In: the registry record (``{"name", "revision", "machine"}``), what ran on it, and the facts only a
person knows. Out: the 35 fields, all text. What nobody recorded is ``N/A`` and named in
``hw_notes``: it is never guessed. Never here: a fact of the machine that the registry did not hold.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from kernelgen.machine import Machine, fingerprint_of
from metering.fields import Fields
from metering.refusal import Refusal
from metering.submission.finding import Finding

MEANINGFUL = (
    "division",
    "submitter",
    "system_type",
    "status",
    "system_name",
    "number_of_nodes",
    "host_processor_model_name",
    "host_processors_per_node",
    "host_processor_core_count",
    "host_memory_capacity",
    "host_memory_configuration",
    "host_storage_capacity",
    "host_storage_type",
    "host_networking",
    "host_network_card_count",
    "host_networking_topology",
    "accelerators_per_node",
    "accelerator_model_name",
    "accelerator_memory_capacity",
    "accelerator_host_interconnect",
    "accelerator_memory_configuration",
    "accelerator_interconnect",
    "cooling",
    "framework",
    "operating_system",
    "other_software_stack",
)
MAY_BE_EMPTY = (
    "host_processor_frequency",
    "host_processor_caches",
    "host_processor_interconnect",
    "accelerator_frequency",
    "accelerator_interconnect_topology",
    "accelerator_on-chip_memories",
    "hw_notes",
    "sw_notes",
    "system_type_detail",
)
FIELDS = (*MEANINGFUL, *MAY_BE_EMPTY)
STATUSES = ("available", "preview", "rdi")
SYSTEM_TYPES = ("datacenter", "edge", "datacenter,edge")

_UNKNOWN = "N/A"
# What the registry and the runs decide; a request may say the rest.
_DECIDED = frozenset(
    (
        "division",
        "submitter",
        "system_type",
        "status",
        "system_name",
        "number_of_nodes",
        "host_processor_model_name",
        "host_processor_core_count",
        "host_processor_caches",
        "host_memory_capacity",
        "accelerators_per_node",
        "accelerator_model_name",
        "accelerator_memory_capacity",
        "framework",
        "operating_system",
        "other_software_stack",
        "hw_notes",
    )
)
_GIB = 2**30


@dataclass(frozen=True)
class Registered:
    """A system as the registry holds it: name, revision, and the facts of its machine."""

    name: str
    revision: int
    machine: Machine


def registered(value: object) -> Registered:
    """Read a registry record. Raises Refusal for one whose fingerprint is not of its facts."""
    fields = Fields(value, "system")
    name, revision, raw = fields.text("name"), fields.integer("revision"), fields.any("machine")
    fields.finish()
    if not isinstance(raw, Mapping):
        raise Refusal("system.machine", type(raw).__name__, "the registry's machine record")
    try:
        machine = Machine.from_dict(raw)
    except ValueError as error:
        raise Refusal("system.machine", error, "the registry's machine record") from error
    if fingerprint_of(machine) != machine.fingerprint:
        raise Refusal(
            "system.machine.fingerprint", machine.fingerprint, "the digest of its own facts",
            "export the record from the registry again",
        )  # fmt: skip
    return Registered(name, revision, machine)


def describe(
    system: Registered,
    *,
    submitter: str,
    status: str,
    system_type: str,
    framework: str,
    software: str,
    details: Mapping[str, str],
) -> dict[str, str]:
    """The 35 fields. Raises Refusal for a detail that is unknown, empty or the registry's own."""
    for name, value in details.items():
        if name not in FIELDS:
            raise Refusal(f"system_details.{name}", value, "a field of the system description")
        if name in _DECIDED:
            raise Refusal(
                f"system_details.{name}", value, "nothing: the registry and the runs say it"
            )
        if not isinstance(value, str) or (name in MEANINGFUL and not value.strip()):
            raise Refusal(f"system_details.{name}", repr(value), "text that is not empty")
    machine = system.machine
    told = {
        "division": "open",
        "submitter": submitter,
        "status": status,
        "system_type": system_type,
        "system_name": f"{system.name}, revision {system.revision}",
        "number_of_nodes": "1",
        "host_processor_model_name": machine.cpu_model,
        "host_processor_core_count": str(machine.cores),
        "host_processor_caches": _caches(machine),
        "host_memory_capacity": f"{machine.memory_bytes / _GIB:.1f} GiB",
        "framework": framework,
        "operating_system": f"Linux {machine.kernel}",
        "other_software_stack": software,
        **_accelerators(machine),
        **details,
    }
    missing = [name for name in MEANINGFUL if name not in told]
    notes = [
        f"Registry fingerprint {machine.fingerprint}",
        "host_processor_core_count counts logical processors",
        f"instruction sets {' '.join(machine.isa)}",
    ]
    if missing:
        notes.append(f"not recorded in the registry: {', '.join(missing)}")
    told["hw_notes"] = "; ".join(notes)
    return {name: told.get(name, _UNKNOWN if name in MEANINGFUL else "") for name in FIELDS}


def _caches(machine: Machine) -> str:
    levels = {"L1d": machine.l1d_bytes, "L2": machine.l2_bytes, "L3": machine.l3_bytes}
    return ", ".join(f"{name} {size // 1024} KiB" for name, size in levels.items() if size)


def _accelerators(machine: Machine) -> dict[str, str]:
    none = {
        name: _UNKNOWN
        for name in (
            "accelerator_host_interconnect",
            "accelerator_memory_configuration",
            "accelerator_interconnect",
        )
    }
    if not machine.gpus:
        return {
            "accelerators_per_node": "0",
            "accelerator_model_name": _UNKNOWN,
            "accelerator_memory_capacity": _UNKNOWN,
            **none,
        }
    sizes = {f"{gpu.memory_bytes / _GIB:.1f} GiB" for gpu in machine.gpus}
    return {
        "accelerators_per_node": str(len(machine.gpus)),
        "accelerator_model_name": ", ".join(sorted({gpu.name for gpu in machine.gpus})),
        "accelerator_memory_capacity": ", ".join(sorted(sizes)),
    }


def description_findings(path: str, value: object, submitter: str) -> list[Finding]:
    """What is wrong with a system description in the folder of ``submitter``."""
    if not isinstance(value, Mapping):
        return [Finding(path, "not a JSON object")]
    given = cast("Mapping[str, object]", value)
    found = _set_findings(path, sorted(given), FIELDS)
    for name in FIELDS:
        text = given.get(name, _UNKNOWN)
        if not isinstance(text, str):
            # The official checker calls the number 0 empty and dies on others.
            found.append(Finding(path, f"{name}: got {text!r}, wanted text"))
        elif name in MEANINGFUL and not text.strip():
            found.append(Finding(path, f"{name}: empty, wanted a value or N/A"))
    if given.get("division") != "open":
        found.append(Finding(path, f"division: got {given.get('division')!r}, wanted 'open'"))
    if given.get("submitter") != submitter:
        found.append(
            Finding(path, f"submitter: got {given.get('submitter')!r}, wanted {submitter!r}")
        )
    for name, choices in (("status", STATUSES), ("system_type", SYSTEM_TYPES)):
        if given.get(name) not in choices:
            found.append(
                Finding(path, f"{name}: got {given.get(name)!r}, wanted {' | '.join(choices)}")
            )
    for name, least in (("number_of_nodes", 1), ("accelerators_per_node", 0)):
        text = given.get(name)
        if not isinstance(text, str) or not re.fullmatch(r"[0-9]{1,9}", text) or int(text) < least:
            found.append(Finding(path, f"{name}: got {text!r}, wanted digits as text"))
    return found


def _set_findings(path: str, got: Sequence[str], wanted: Sequence[str]) -> list[Finding]:
    found = [Finding(path, f"{name}: missing") for name in wanted if name not in got]
    return found + [Finding(path, f"{name}: unknown field") for name in got if name not in wanted]
