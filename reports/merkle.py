"""The Merkle tree of RFC 6962: roots, inclusion proofs, consistency proofs.

In: leaf hashes in log order. Out: hashes of 32 bytes, and yes or no. Pure; knows no files and no
keys. The two checkers follow RFC 9162 sections 2.1.3.2 and 2.1.4.2 and share no code with the
builders, so that one bug cannot hide in both. A proof says nothing about *which* root is right:
that is the signed checkpoint's job.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence


def _hash(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


def leaf_hash(data: bytes) -> bytes:
    return _hash(b"\x00", data)


def _node(left: bytes, right: bytes) -> bytes:
    return _hash(b"\x01", left, right)


def _split(size: int) -> int:
    """Largest power of two smaller than `size` (size > 1)."""
    return 1 << ((size - 1).bit_length() - 1)


def root(leaves: Sequence[bytes]) -> bytes:
    """Root of the tree over leaf hashes; the empty tree's root is SHA-256 of nothing."""
    if not leaves:
        return _hash()
    if len(leaves) == 1:
        return leaves[0]
    middle = _split(len(leaves))
    return _node(root(leaves[:middle]), root(leaves[middle:]))


def inclusion_proof(index: int, leaves: Sequence[bytes]) -> tuple[bytes, ...]:
    """Sibling hashes from leaf `index` up to the root. Raises IndexError outside the tree."""
    if not 0 <= index < len(leaves):
        raise IndexError(f"leaf {index} is outside a tree of {len(leaves)}")
    if len(leaves) == 1:
        return ()
    middle = _split(len(leaves))
    if index < middle:
        return (*inclusion_proof(index, leaves[:middle]), root(leaves[middle:]))
    return (*inclusion_proof(index - middle, leaves[middle:]), root(leaves[:middle]))


def consistency_proof(old_size: int, leaves: Sequence[bytes]) -> tuple[bytes, ...]:
    """Hashes that show the first `old_size` leaves are still the beginning of the tree."""
    if not 0 < old_size <= len(leaves):
        raise IndexError(f"old size {old_size} is outside 1..{len(leaves)}")
    return _subproof(old_size, leaves, True)


def _subproof(old_size: int, leaves: Sequence[bytes], whole: bool) -> tuple[bytes, ...]:
    size = len(leaves)
    if old_size == size:
        return () if whole else (root(leaves),)
    middle = _split(size)
    if old_size <= middle:
        return (*_subproof(old_size, leaves[:middle], whole), root(leaves[middle:]))
    return (*_subproof(old_size - middle, leaves[middle:], False), root(leaves[:middle]))


def includes(leaf: bytes, index: int, size: int, proof: Sequence[bytes], tree_root: bytes) -> bool:
    """True if `proof` leads from leaf hash `leaf` at `index` to the root of a tree of `size`."""
    if not 0 <= index < size:
        return False
    node, last, computed = index, size - 1, leaf
    for sibling in proof:
        if last == 0:
            return False
        if node & 1 or node == last:
            computed = _node(sibling, computed)
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        else:
            computed = _node(computed, sibling)
        node, last = node >> 1, last >> 1
    return last == 0 and computed == tree_root


def consistent(
    old_size: int, new_size: int, old_root: bytes, new_root: bytes, proof: Sequence[bytes]
) -> bool:
    """True if the tree of `new_size` extends the tree of `old_size` and changes none of it."""
    if old_size == new_size:
        return old_root == new_root and not proof
    if not 0 < old_size < new_size or not proof:
        return False
    path = list(proof)
    if old_size & (old_size - 1) == 0:
        path.insert(0, old_root)
    node, last = old_size - 1, new_size - 1
    while node & 1:
        node, last = node >> 1, last >> 1
    old = new = path[0]
    for sibling in path[1:]:
        if last == 0:
            return False
        if node & 1 or node == last:
            old, new = _node(sibling, old), _node(sibling, new)
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        else:
            new = _node(new, sibling)
        node, last = node >> 1, last >> 1
    return last == 0 and old == old_root and new == new_root
