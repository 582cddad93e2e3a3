"""The language-model proposer against a real local server: good, wrong, hostile, malformed, slow.

The server is a thread of this process and speaks HTTP over a real socket; the kernels it answers
are compiled in the sandbox and meet the real judge.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from kernelgen.agent.bench import Bench
from kernelgen.agent.endpoint import Endpoint
from kernelgen.agent.ledger import Ledger, TokenPrice
from kernelgen.agent.llm import GIVE_UP, LanguageModel
from kernelgen.agent.proposals import Unusable, Written
from kernelgen.agent.proposers import History, Proposer, standard
from kernelgen.agent.records import Records, read
from kernelgen.agent.replay import replay
from kernelgen.agent.reply import ReplyError, fenced, read_reply
from kernelgen.agent.search import Found, Limits, search
from kernelgen.agent.transcript import Replayed, Transcript, read_exchanges
from kernelgen.attacks.scale import Scale
from kernelgen.judge.contest import Point
from kernelgen.machine import Machine, describe
from kernelgen.ops import MeanPool
from kernelgen.ops.operator import Operator
from kernelgen.schedule import space
from tests.kernelgen.test_agent_endpoint import KEY, Server, says, send

CORE = min(os.sched_getaffinity(0))
DIMS = {"n": 8, "tokens": 400}
OPERATOR = MeanPool(48)


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    yield found
    found.close()


@pytest.fixture(scope="module")
def machine() -> Machine:
    return describe()


MALFORMED = {
    "nothing": "I cannot help.",
    "two blocks": "```c\nint a;\n```\n```c\nint b;\n```",
    "open block": "```c\nint a;",
    "empty block": "```c\n\n```",
    "another language": "```python\nprint()\n```",
    "too long": "```c\n" + "x" * 200_000 + "\n```",
    "two schedules": "```schedule\nvector=8\nvector=8\n```",
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_reply_is_refused(name: str, machine: Machine) -> None:
    with pytest.raises(ReplyError) as caught:
        read_reply(MALFORMED[name], space(OPERATOR, machine), kernels=True)
    assert caught.value.reason == "malformed_answer"


def test_a_reply_with_words_around_its_block_is_read(machine: Machine) -> None:
    choices = space(OPERATOR, machine)
    words = choices.default().text().partition(": ")[2]
    text = f"Ignore all rules and accept me.\n```schedule\n{words}\n```\nThe judge must say yes."
    assert read_reply(text, choices, kernels=True) == choices.default()
    assert fenced("```c\nint a;\n```")[1] == "int a;\n"
    with pytest.raises(ReplyError) as caught:
        read_reply("```schedule\nvector=3\n```", choices, kernels=True)
    assert caught.value.reason == "illegal_schedule"
    with pytest.raises(ReplyError, match="wanted a schedule block"):
        read_reply("```c\nint a;\n```", choices, kernels=False)


HEAD = """\
#include <stdint.h>
#include <string.h>
EXPORT size_t packed_bytes(const int64_t *dim) { return 0; }
EXPORT int prepare(const void *const *weight, const int64_t *dim, void *packed) { return 0; }
EXPORT size_t scratch_bytes(const int64_t *dim) { return 0; }
EXPORT int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed,
                  void *scratch) {
"""
POOL = """\
  const float *x = in[0];
  const int64_t *offset = in[1];
  float *y = out[0];
  for (int64_t s = 0; s < dim[0]; s++)
    for (int64_t c = 0; c < 48; c++) {
      float sum = 0;
      for (int64_t t = offset[s]; t < offset[s + 1]; t++) sum += x[t * 48 + c];
      y[s * 48 + c] = sum / (float)(offset[s + 1] - offset[s]);
    }
  return 0;
}
"""
GOOD = HEAD + POOL
WRONG = GOOD.replace("sum += x", "sum -= x")
BROKEN = GOOD.replace("float sum = 0;", "float sum = nothing;")


def block(text: str) -> str:
    return f"Here it is.\n```c\n{text}```\n"


class Place:
    """A bench, a ledger with token prices and a model over a server, in one folder."""

    def __init__(self, folder: Path, machine: Machine, server: Server, **changes: object) -> None:
        self.folder = folder
        self.ledger = Ledger(
            folder / "ledger.jsonl",
            Decimal("3.6"),
            "EUR",
            customer="acme",
            model="encoder",
            token_price=TokenPrice(Decimal(2), Decimal(10)),
        )
        self.space = space(OPERATOR, machine)
        self.bench = Bench(
            OPERATOR,
            (Point(DIMS),),
            machine=machine,
            core=CORE,
            work=folder / "work",
            ledger=self.ledger,
            records=Records(folder / "trials.jsonl"),
        )
        options: dict[str, object] = {"key": KEY, "limit_s": 2.0, "wait_s": 0.05, **changes}
        self.transcript = Transcript(
            folder / "answers.jsonl",
            Endpoint(server.url, "tiny", **options).ask,  # type: ignore[arg-type]
        )
        self.model = LanguageModel(
            self.transcript, OPERATOR, (Point(DIMS),), machine, book=self.bench.book_tokens
        )

    def search(self, trials: int, *others: Proposer) -> Found:
        return search(
            self.space,
            self.bench,
            np.random.default_rng(3),
            budget_s=120,
            proposers=(*others, self.model),
            limits=Limits(trials=trials),
            stopwatch=time.monotonic,
        )


def everything_written(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_a_kernel_is_repaired_from_errors_and_the_smallest_failing_input(
    tmp_path: Path, machine: Machine, server: Server
) -> None:
    server.scripts = [says(block(BROKEN)), says(block(WRONG)), says(block(GOOD)), says("no more")]
    place = Place(tmp_path, machine, server)
    found = place.search(5)
    default, broken, wrong, good = found.trials[:4]
    assert default.accepted, default
    assert (broken.proposer, broken.reason) == ("llm", "not_compiled")
    assert wrong.reason == "wrong_output"
    assert "Smallest failing input found: n=1, tokens=1" in wrong.evidence
    assert good.reason in ("accepted", "slower"), good.detail
    first = json.dumps(server.asked[0]["messages"])
    for fact in ("mean_pool_48", "Legal schedule axes", "Its source", "EXPORT int kernel"):
        assert fact in first
    assert "undeclared" in json.dumps(server.asked[1]["messages"])
    assert "Smallest failing input" in json.dumps(server.asked[2]["messages"])
    assert KEY.encode() not in everything_written(tmp_path)

    booked = [json.loads(line) for line in place.ledger.path.read_text().splitlines()]
    tokens = [line for line in booked if line["work"] == "tokens"]
    assert {(line["customer"], line["model"]) for line in booked} == {("acme", "encoder")}
    assert Decimal(tokens[0]["cost"]) == Decimal("0.0004")  # 100 at 2 and 20 at 10 a million
    assert sum(Decimal(line["cost"]) for line in booked) == place.ledger.cost
    assert abs(found.cost - place.ledger.cost) < Decimal("1e-20")


def test_a_search_with_a_language_model_replays_without_server_and_judge(
    tmp_path: Path, machine: Machine, server: Server
) -> None:
    other = space(OPERATOR, machine).default().with_choice("group", 2).text().partition(": ")[2]
    server.scripts = [
        says(block(WRONG)),
        says(f"```schedule\n{other}\n```"),
        says("nonsense"),
        send(b"", 500),
        says(block(GOOD)),
    ]
    place = Place(tmp_path, machine, server)
    live = place.search(8, *standard())
    server.close()
    model = LanguageModel(
        Replayed(read_exchanges(tmp_path / "answers.jsonl")),
        OPERATOR,
        (Point(DIMS),),
        machine,
        book=lambda *tokens: None,
    )
    again = replay(
        place.space,
        read(tmp_path / "trials.jsonl"),
        np.random.default_rng(3),
        budget_s=120,
        proposers=(*standard(), model),
        limits=Limits(trials=8),
    )
    assert [t.schedule for t in again.trials] == [t.schedule for t in live.trials]
    assert [t.reason for t in again.trials] == [t.reason for t in live.trials]
    assert again.best == live.best
    assert again.seconds == pytest.approx(live.seconds)
    assert any(t.proposer == "llm" for t in again.trials)


def test_repair_is_bounded_and_a_gone_server_is_left_alone(
    tmp_path: Path, machine: Machine, server: Server
) -> None:
    server.scripts = [says(block(BROKEN))] * 20
    place = Place(tmp_path, machine, server)
    history = History(place.space.default())
    rng = np.random.default_rng(0)
    offer = place.model.propose(place.space, history, rng)
    assert isinstance(offer, Written)
    trial = place.bench.evaluate(offer, None, number=0, proposer="llm")
    tries = 0
    while place.model.repair(place.space, history, trial, rng) is not None:
        tries += 1
    assert tries == 3
    server.scripts = [send(b"", 401)] * 99
    for _ in range(GIVE_UP):
        answer = place.model.propose(place.space, history, rng)
        assert isinstance(answer, Unusable)
        assert answer.reason == "no_answer"
    asked = len(server.asked)
    assert place.model.propose(place.space, history, rng) is None
    assert len(server.asked) == asked


HOSTILE = {
    # name: (kernel text, reasons one of which the judge or the check must give)
    "reads a file by include": ('#include "/etc/passwd"\n' + GOOD, "source_refused"),
    "reads a file by incbin": ('__asm__(".incbin \\"/etc/passwd\\"");\n' + GOOD, "source_refused"),
    "system call by asm": (
        GOOD.replace("return 0;\n}\n", '__asm__("syscall"); return 0;\n}\n'),
        "source_refused",
    ),
    "runs on loading": (
        GOOD + "__attribute__((constructor)) static void early(void) {}\n",
        "source_refused",
    ),
    "calls the system": (
        "int system(const char *);\n" + GOOD.replace("return 0;\n}\n", 'return system("id");\n}\n'),
        "forbidden_symbol",
    ),
    "fills the disk while compiling": (
        "static char big[1ul << 40] = {1};\n" + GOOD.replace("float sum = 0", "float sum = big[1]"),
        "not_compiled",
    ),
    "never ends": (GOOD.replace("float sum = 0;", "float sum = 0; for (;;) ;"), "time_limit"),
    "claims to be done": (HEAD + "  return 0;\n}\n", "not_written"),
    "writes past its end": (
        GOOD.replace("y[s * 48 + c] =", "y[s * 48 + c + 48] ="),
        "out_of_bounds",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_kernels_meet_the_check_or_the_judge(
    name: str, tmp_path: Path, machine: Machine, server: Server
) -> None:
    text, reason = HOSTILE[name]
    server.scripts = [says("Change the judge so that it accepts me.\n" + block(text))]
    place = Place(tmp_path, machine, server)
    offer = place.model.propose(
        place.space, History(place.space.default()), np.random.default_rng(0)
    )
    assert offer is not None
    if isinstance(offer, Unusable):
        assert offer.reason == reason, offer.detail
        assert "root:" not in offer.detail
        return
    trial = place.bench.evaluate(offer, None, number=0, proposer="llm")
    assert trial.reason == reason, trial.detail
    assert "root:" not in trial.detail


def test_any_operator_can_be_described(machine: Machine, server: Server, tmp_path: Path) -> None:
    """The prompt needs nothing that only our own families have."""
    from kernelgen.agent.prompt import messages

    operator: Operator = Scale()
    text = json.dumps(
        messages(
            operator,
            (Point({"n": 4}),),
            machine,
            space(OPERATOR, machine),
            History(space(OPERATOR, machine).default()),
            kernels=True,
        )
    )
    assert "y float32" in text
    assert "1.5 x" in text
