"""The evidence folder of a measurement: where it lies and what the portal itself puts in.

In: a signed contract version. Out: plan.json, contract.json, pricebook.json, system.json,
mix.json and agreement.json in the folder that the metering engine fills with its runs. Numbers
stay as the engines wrote them; no figure is made here.
"""

import json
import uuid
from pathlib import Path

from metering import canonical
from portal.contracts.agreement import PAYLOAD_TYPE, agreement_bytes
from portal.contracts.models import ContractVersion
from portal.workspace import home, write


def measurement_id(contract_version: ContractVersion) -> uuid.UUID:
    """The id of a contract version's first measurement, known before it starts.

    Its folder must exist from the first baseline run on, and a resumed job must find it again.
    """
    return uuid.uuid5(contract_version.pk, "measurement 1")


def evidence_folder(contract_version: ContractVersion) -> Path:
    """The folder that holds everything about that measurement."""
    return home() / "evidence" / str(measurement_id(contract_version))


def remeasured_folder(contract_version: ContractVersion, number: int) -> Path:
    """The folder of re-measurement `number` (from 1) of the contract version's baseline."""
    return home() / "evidence" / str(uuid.uuid5(contract_version.pk, f"baseline {number}"))


def write_agreement(contract_version: ContractVersion, folder: Path | None = None) -> Path:
    """Write what was agreed and what is measured into the folder; returns the folder.

    The folder is that of the measurement unless another is named. Written again with the same
    bytes when a job resumes: all of it is fixed once signed.
    """
    folder = folder or evidence_folder(contract_version)
    mix, system = contract_version.mix, contract_version.system
    write(folder / "plan.json", canonical.dumps(contract_version.plan))
    write(folder / "contract.json", canonical.dumps(contract_version.contract))
    write(folder / "pricebook.json", canonical.dumps(contract_version.price_book.document))
    # Measured peaks are floats: written once from the stored row, so always the same text.
    machine = json.dumps(
        {"name": system.name, "revision": system.revision, "machine": system.machine},
        sort_keys=True,
        indent=1,
    )
    write(folder / "system.json", machine.encode() + b"\n")
    write(
        folder / "mix.json",
        canonical.dumps(
            {
                "name": mix.name,
                "model": mix.model.name,
                "model_sha256": mix.model.sha256,
                "licence": mix.model.licence,
                "traffic_source": mix.traffic_source,
                "unit": mix.unit,
                "length_histogram": mix.length_histogram,
                "samples": mix.sample_count,
                "samples_sha256": mix.samples_sha256,
                "held_out": mix.held_out_count,
                "held_out_sha256": mix.held_out_sha256,
            }
        ),
    )
    write(folder / "agreement.json", canonical.dumps(_agreement(contract_version)))
    return folder


def _agreement(contract_version: ContractVersion) -> dict[str, object]:
    return {
        "agreement": json.loads(agreement_bytes(contract_version)),
        "payload_type": PAYLOAD_TYPE,
        "signatures": [
            {
                "party": signature.party,
                "key_id": signature.key_id,
                "public_key": signature.public_key_pem,
                "signature": signature.signature_b64,
            }
            for signature in contract_version.signatures.order_by("party")
        ],
    }
