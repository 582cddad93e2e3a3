from dataclasses import replace

import numpy as np
import pytest

from kernelgen.machine import describe
from kernelgen.ops import Attention, EmbedLayernorm, GemmBias, GemmBiasGelu, MeanPool
from kernelgen.schedule import Schedule, ScheduleError, space

AVX512 = replace(
    describe(measure=False), isa=("avx2", "avx512bw", "avx512dq", "avx512f", "avx512vl", "fma")
)
AVX2 = replace(AVX512, isa=("avx2", "fma"))
OPERATORS = [
    GemmBias(384, 1152),
    GemmBiasGelu(384, 1536),
    Attention(12, 32, 0.2),
    MeanPool(384),
    EmbedLayernorm(50, 40, 384, 1e-12),
]
CASES = [
    pytest.param(op, machine, id=f"{op.family}-{len(machine.isa)}")
    for op in OPERATORS
    for machine in (AVX512, AVX2)
]


@pytest.mark.parametrize(("operator", "machine"), CASES)
def test_every_move_stays_legal(operator, machine):
    found = space(operator, machine)
    rng = np.random.default_rng(3)
    parent = found.default()
    assert found.legal(parent) is None
    seen = set()
    for _ in range(60):
        other = found.sample(rng)
        child = found.cross(parent, other, rng)
        parent = found.mutate(child, rng)
        for one in (other, child, parent):
            assert found.legal(one) is None
            seen.add(one)
    assert len(seen) > min(10, found.size // 3)
    assert all(found.legal(one) is None for one in found.neighbours(parent))


@pytest.mark.parametrize(("operator", "machine"), CASES)
def test_text_and_dict_replay_exactly(operator, machine):
    one = space(operator, machine).sample(np.random.default_rng(1))
    assert Schedule.parse(one.text()) == one
    assert Schedule.from_dict(one.to_dict()) == one


def test_the_same_seed_gives_the_same_schedules():
    found = space(GemmBias(384, 1152), AVX512)
    draws = [[found.sample(np.random.default_rng(5)) for _ in range(3)] for _ in range(2)]
    assert draws[0] == draws[1]


@pytest.mark.parametrize(
    ("axis", "value", "words"),
    [
        ("mr", 14, "registers"),
        ("nr", 5, "wanted one of"),
        ("mr", "many", "wanted one of"),
        ("rows", 7, "wanted one of"),
    ],
)
def test_illegal_choices_are_named(axis, value, words):
    found = space(GemmBias(384, 1152), AVX512)
    reason = found.legal(found.default().with_choice(axis, value))
    assert reason is not None
    assert axis in reason
    assert words in reason


def test_narrow_machines_get_no_wide_vectors():
    assert 16 not in space(MeanPool(384), AVX2).axes["vector"]
    assert 16 in space(MeanPool(384), AVX512).axes["vector"]


def test_a_schedule_for_another_operator_is_refused():
    found = space(MeanPool(384), AVX2)
    stranger = space(MeanPool(768), AVX2).default()
    assert "mean_pool_768" in str(found.legal(stranger))
    with pytest.raises(ScheduleError, match="not in this space"):
        found.mutate(stranger, np.random.default_rng(0))


@pytest.mark.parametrize(
    "text",
    ["", "no colon", "op: mr", "op: mr=", "op: mr=1 mr=2", "op: MR=1", "op: mr=1.5", ": mr=1"],
)
def test_bad_texts_are_refused(text):
    with pytest.raises(ScheduleError):
        Schedule.parse(text)


def test_asking_for_the_wrong_kind_names_the_axis():
    one = Schedule.of("op", {"mr": 3, "order": "rows"})
    with pytest.raises(ScheduleError, match="order"):
        one.number("order")
    with pytest.raises(ScheduleError, match="mr"):
        one.word("mr")
    with pytest.raises(ScheduleError, match="no axis"):
        one.number("nr")
