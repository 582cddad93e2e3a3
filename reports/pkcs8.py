"""Private keys at rest: PKCS#8 under a passphrase, slow to guess.

In: a private key in DER and a passphrase. Out: `ENCRYPTED PRIVATE KEY` PEM that any tool reads
(PBES2, AES-256-CBC, PBKDF2 with HMAC-SHA-256). Written here only because the library's own writer
fixes the count of rounds at 2,048; reading is left to the library.
"""

from __future__ import annotations

import base64
import hashlib
import os
import textwrap

from asn1crypto import algos, keys
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.padding import PKCS7

# OWASP's password storage cheat sheet, PBKDF2-HMAC-SHA256.
ROUNDS = 600_000
_KEY_BYTES, _SALT_BYTES, _BLOCK_BYTES = 32, 16, 16


def encrypted_pem(private_der: bytes, passphrase: str) -> bytes:
    """PEM of the PKCS#8 key `private_der`, encrypted under `passphrase`."""
    salt, start = os.urandom(_SALT_BYTES), os.urandom(_BLOCK_BYTES)
    secret = hashlib.pbkdf2_hmac("sha256", passphrase.encode(), salt, ROUNDS, _KEY_BYTES)
    padder = PKCS7(8 * _BLOCK_BYTES).padder()
    padded = padder.update(private_der) + padder.finalize()
    encryptor = Cipher(algorithms.AES256(secret), modes.CBC(start)).encryptor()
    sealed = keys.EncryptedPrivateKeyInfo(
        {
            "encryption_algorithm": {
                "algorithm": "pbes2",
                "parameters": {
                    "key_derivation_func": {
                        "algorithm": "pbkdf2",
                        "parameters": {
                            "salt": algos.Pbkdf2Salt(name="specified", value=salt),
                            "iteration_count": ROUNDS,
                            "key_length": _KEY_BYTES,
                            "prf": {"algorithm": "sha256", "parameters": None},
                        },
                    },
                    "encryption_scheme": {"algorithm": "aes256_cbc", "parameters": start},
                },
            },
            "encrypted_data": encryptor.update(padded) + encryptor.finalize(),
        }
    )
    body = textwrap.fill(base64.b64encode(sealed.dump()).decode("ascii"), 64)
    kind = "ENCRYPTED PRIVATE KEY"
    return f"-----BEGIN {kind}-----\n{body}\n-----END {kind}-----\n".encode("ascii")
