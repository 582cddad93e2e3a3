"""Who takes part in the demonstration, and what each holds.

In: the home. Out: organisations, members with random passwords, the customer's and the auditor's
own keys under `var/demo`. The auditor's private keys are made and used here, by the auditor's own
tool, and never reach the portal.
"""

import base64
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from django.contrib.auth.models import User

from portal.accounts.access import Platform
from portal.accounts.models import Membership, Organisation, Role
from portal.accounts.services import member_add, organisation_create
from portal.audits.services import PUBLIC_FILES, auditor_key_register
from portal.contracts.agreement import signed_bytes
from portal.contracts.models import ContractVersion, Party
from portal.contracts.services import party_key_register, plan_sign
from portal.keystore import platform_keys, platform_keys_dir
from portal.workspace import home, write
from reports.keys import create_auditor_keys, key_id, load_keys, public_pem
from reports.trust import export_trust

AUDITOR_NAME = "Northlight Assurance"


@dataclass(frozen=True)
class Cast:
    """Everybody of the demonstration."""

    customer: Membership
    auditor: Membership
    finance: Membership
    operator: Membership
    outsider: Membership

    @property
    def organisation(self) -> Organisation:
        """The customer's organisation."""
        return self.customer.organisation

    @property
    def platform(self) -> Platform:
        """The platform, working for the customer."""
        return Platform(self.organisation, self.customer.user)


def demo_folder() -> Path:
    """What belongs to the parties, not to the portal."""
    return home() / "demo"


def gather() -> Cast:
    """Create the organisations and their people on the first call; the same ones afterwards."""
    own = organisation_create(
        slug="lumen",
        name="Lumen Search GmbH",
        address="Hafenstrasse 12, 20457 Hamburg",
        country="DE",
        vat_id="DE812345674",
    )
    host = organisation_create(
        slug="ignition",
        name="Ignition",
        address="Werkstrasse 3, 10115 Berlin",
        country="DE",
        vat_id="DE298765432",
        is_operating=True,
    )
    other = organisation_create(
        slug="harbour", name="Harbour Logistics BV", country="NL", vat_id="NL001234567B01"
    )
    passwords: dict[str, str] = {}

    def member(username: str, organisation: Organisation, role: str) -> Membership:
        if not User.objects.filter(username=username).exists():
            passwords[username] = secrets.token_urlsafe(9)
        return member_add(
            actor=Platform(organisation),
            organisation=organisation,
            username=username,
            role=role,
            password=passwords.get(username),
        )

    cast = Cast(
        customer=member("customer", own, Role.CUSTOMER),
        auditor=member("auditor", own, Role.AUDITOR),
        finance=member("finance", own, Role.FINANCE),
        operator=member("operator", host, Role.OPERATOR),
        outsider=member("outsider", other, Role.CUSTOMER),
    )
    _keep_credentials(cast, passwords)
    return cast


def credentials_file() -> Path:
    """Where the sign-ins of this installation are written (mode 0600)."""
    return demo_folder() / "credentials.txt"


def _keep_credentials(cast: Cast, passwords: dict[str, str]) -> None:
    """Write the sign-ins once; a password that was never written down is set anew."""
    path = credentials_file()
    members = (cast.customer, cast.auditor, cast.finance, cast.operator, cast.outsider)
    if path.is_file() and not passwords:
        return
    lines = []
    for member in members:
        user = member.user
        password = passwords.get(user.username)
        if password is None:
            # Made by a run that was killed before it could write this file.
            password = secrets.token_urlsafe(9)
            user.set_password(password)
            user.save(update_fields=["password"])
        lines.append(
            f"{member.role:<10} {user.username:<10} {password:<14} {member.organisation}\n"
        )
    write(path, "".join(lines).encode(), mode=0o600)


def auditor_keys_dir() -> Path:
    """The auditor's own keys: outside the portal's key store."""
    return demo_folder() / "auditor"


def trust_dir() -> Path:
    """The public keys of both sides, as a reader gets them with the contract."""
    return demo_folder() / "trust"


def make_keys(cast: Cast) -> None:
    """Let each party make its keys with its own tool and register the public halves."""
    folder = auditor_keys_dir()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    auditor = create_auditor_keys(folder, organisation=AUDITOR_NAME)
    statement_pem = public_pem(auditor.statement.public_key()).decode("ascii")
    auditor_key_register(
        actor=cast.auditor,
        organisation=cast.organisation,
        public_key_pem=statement_pem,
        public_files={
            name: (folder / name).read_text("ascii")
            for name in PUBLIC_FILES
            if (folder / name).is_file()
        },
    )
    platform = platform_keys()
    export_trust(platform_keys_dir(), folder, trust_dir())
    pems = {
        Party.PROVIDER: public_pem(platform.statement.public_key()).decode("ascii"),
        Party.CUSTOMER: public_pem(customer_key().public_key()).decode("ascii"),
        Party.AUDITOR: statement_pem,
    }
    for party, pem in pems.items():
        party_key_register(
            actor=_speaker(cast, party),
            organisation=cast.organisation,
            party=party,
            public_key_pem=pem,
        )


def _speaker(cast: Cast, party: str) -> Membership | Platform:
    speakers: dict[str, Membership | Platform] = {
        Party.PROVIDER: cast.platform,
        Party.CUSTOMER: cast.customer,
        Party.AUDITOR: cast.auditor,
    }
    return speakers[party]


def customer_key() -> Ed25519PrivateKey:
    """The customer's own key for signing plans, made on the first call."""
    path = demo_folder() / "customer" / "plan.key"
    if not path.is_file():
        made = Ed25519PrivateKey.generate()
        pem = made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.chmod(path.parent, 0o700)
        write(path, pem, mode=0o600)
    key = load_pem_private_key(path.read_bytes(), None)
    if not isinstance(key, Ed25519PrivateKey):
        raise TypeError(f"{path}: got {type(key).__name__}, wanted an Ed25519 key")
    return key


def sign_agreement(cast: Cast, version: ContractVersion) -> None:
    """Let provider, customer and auditor sign, each with its own key."""
    keys = {
        Party.PROVIDER: platform_keys().statement,
        Party.CUSTOMER: customer_key(),
        Party.AUDITOR: load_keys(auditor_keys_dir(), "auditor").statement,
    }
    message = signed_bytes(version)
    for party, key in keys.items():
        plan_sign(
            actor=_speaker(cast, party),
            contract_version=version,
            party=party,
            key_id=key_id(key.public_key()),
            signature_b64=base64.b64encode(key.sign(message)).decode("ascii"),
        )
