import json

import numpy as np
import pytest

from kernelgen.workload import (
    docstring_sentences,
    length_histogram,
    load_samples,
    save_samples,
    tokenize,
)


@pytest.fixture(scope="module")
def sentences() -> list[str]:
    return docstring_sentences(300)


@pytest.fixture
def tokenizer(tmp_path, sentences):
    """A word-level tokenizer file of the same format, with [CLS] and [SEP], that also asks for
    padding.
    """
    words = sorted({word for text in sentences for word in text.split()})
    vocabulary = {word: place for place, word in enumerate(["[UNK]", "[CLS]", "[SEP]", *words])}
    path = tmp_path / "tokenizer.json"
    path.write_text(
        json.dumps(
            {
                "version": "1.0",
                "truncation": None,
                "padding": {
                    "strategy": {"Fixed": 64},
                    "direction": "Right",
                    "pad_to_multiple_of": None,
                    "pad_id": 0,
                    "pad_type_id": 0,
                    "pad_token": "[UNK]",
                },
                "added_tokens": [],
                "normalizer": None,
                "pre_tokenizer": {"type": "WhitespaceSplit"},
                "post_processor": {
                    "type": "BertProcessing",
                    "sep": ["[SEP]", 2],
                    "cls": ["[CLS]", 1],
                },
                "decoder": None,
                "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"},
            }
        )
    )
    return path


def test_sentences_are_prose_and_never_repeat(sentences):
    assert len(sentences) == 300 == len(set(sentences))
    for text in sentences:
        assert text[0].isupper()
        assert text[-1] in ".!?"
        assert ">>>" not in text
        assert 3 <= len(text.split()) <= 90


def test_the_order_is_the_same_every_time(sentences):
    assert docstring_sentences(50) == sentences[:50]


def test_limits(sentences):
    assert docstring_sentences(0) == []
    with pytest.raises(ValueError, match="limit: got -1"):
        docstring_sentences(-1)


def test_tokens_have_natural_lengths_and_markers(sentences, tokenizer):
    ids = tokenize(sentences, tokenizer, 128)
    assert [len(one) for one in ids] == [len(text.split()) + 2 for text in sentences]
    assert all(one.dtype == np.int64 and one[0] == 1 and one[-1] == 2 for one in ids)
    assert len({len(one) for one in ids}) > 10


def test_long_sentences_are_cut_with_their_end_marker(sentences, tokenizer):
    ids = tokenize(sentences, tokenizer, 5)
    assert max(len(one) for one in ids) == 5
    assert all(one[-1] == 2 for one in ids)
    with pytest.raises(ValueError, match="max_tokens: got 2"):
        tokenize(sentences, tokenizer, 2)


@pytest.mark.parametrize("content", [None, b"", b"{}", b"\xff\x00 no tokenizer"])
def test_a_file_that_is_no_tokenizer_is_named(tmp_path, sentences, content):
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=r"tokenizer: .*tokenizer\.json: wanted a tokenizer"):
        tokenize(sentences, path)


def test_samples_round_trip_with_the_same_bytes(tmp_path):
    ids = [np.array([1, 5, 2]), np.array([1, 2]), np.array([7])]
    first = save_samples(tmp_path / "a.npz", ids)
    assert first == save_samples(tmp_path / "b" / "b.npz", ids)
    loaded = load_samples(tmp_path / "a.npz")
    assert [one.tolist() for one in loaded] == [one.tolist() for one in ids]
    assert length_histogram(loaded) == {1: 1, 2: 1, 3: 1}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"ids": np.array([1])}, "'offsets'"),
        ({"ids": np.array([1.0]), "offsets": np.array([0, 1])}, "'ids'"),
        ({"ids": np.array([1, 2]), "offsets": np.array([0, 1])}, "do not cut"),
        ({"ids": np.array([1, 2]), "offsets": np.array([0, 0, 2])}, "do not cut"),
    ],
)
def test_damaged_sample_files_are_refused(tmp_path, arrays, message):
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        load_samples(tmp_path / "bad.npz")
