"""The Merkle tree against every tree up to 65 leaves, and against known roots of RFC 6962 logs."""

from __future__ import annotations

import hashlib

import pytest

from reports.merkle import (
    consistency_proof,
    consistent,
    includes,
    inclusion_proof,
    leaf_hash,
    root,
)

LEAVES = [leaf_hash(b"entry %d" % number) for number in range(65)]
ROOTS = [root(LEAVES[:size]) for size in range(66)]

# The inputs and roots of the Certificate Transparency reference implementation's own tests.
CT_INPUTS = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657",
             "606162636465666768696a6b6c6d6e6f"]  # fmt: skip
CT_ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]


def test_roots_of_the_certificate_transparency_reference_tree() -> None:
    leaves = [leaf_hash(bytes.fromhex(item)) for item in CT_INPUTS]
    assert root([]).hex() == hashlib.sha256(b"").hexdigest()
    for size, wanted in enumerate(CT_ROOTS, start=1):
        assert root(leaves[:size]).hex() == wanted


@pytest.mark.parametrize("size", range(1, 66))
def test_every_inclusion_proof_holds_and_only_for_its_own_place(size: int) -> None:
    for index in range(size):
        proof = inclusion_proof(index, LEAVES[:size])
        assert includes(LEAVES[index], index, size, proof, ROOTS[size])
        other = (index + 1) % size
        if other != index:
            assert not includes(LEAVES[index], other, size, proof, ROOTS[size])
            assert not includes(LEAVES[other], index, size, proof, ROOTS[size])
        assert not includes(LEAVES[index], index, size, proof, ROOTS[size - 1])
        assert not includes(LEAVES[index], index, size, (*proof, LEAVES[0]), ROOTS[size])
        if proof:
            assert not includes(LEAVES[index], index, size, proof[:-1], ROOTS[size])
            assert not includes(LEAVES[index], index, size, proof[::-1], ROOTS[size]) or (
                proof == proof[::-1]
            )


@pytest.mark.parametrize("new", range(1, 66))
def test_every_consistency_proof_holds_and_no_other_does(new: int) -> None:
    for old in range(1, new + 1):
        proof = consistency_proof(old, LEAVES[:new])
        assert consistent(old, new, ROOTS[old], ROOTS[new], proof)
        assert not consistent(old, new, ROOTS[old - 1], ROOTS[new], proof)
        assert not consistent(old, new, ROOTS[old], ROOTS[new - 1], proof) or old == new == 0
        assert not consistent(old, new, ROOTS[old], ROOTS[new], (*proof, LEAVES[0]))
        if proof:
            assert not consistent(old, new, ROOTS[old], ROOTS[new], proof[:-1])


def test_a_rewritten_leaf_breaks_consistency() -> None:
    rewritten = [*LEAVES[:3], leaf_hash(b"other"), *LEAVES[4:9]]
    proof = consistency_proof(7, rewritten)
    assert not consistent(7, 9, ROOTS[7], root(rewritten), proof)


@pytest.mark.parametrize("index", [-1, 5])
def test_a_place_outside_the_tree_is_refused(index: int) -> None:
    with pytest.raises(IndexError, match="outside"):
        inclusion_proof(index, LEAVES[:5])
    assert not includes(LEAVES[0], index, 5, (), ROOTS[5])


@pytest.mark.parametrize("old", [0, 6])
def test_an_old_size_outside_the_tree_is_refused(old: int) -> None:
    with pytest.raises(IndexError, match="outside"):
        consistency_proof(old, LEAVES[:5])
    assert not consistent(old, 5, ROOTS[0], ROOTS[5], LEAVES[:1])
