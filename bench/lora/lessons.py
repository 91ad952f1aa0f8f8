"""The training set, lessons.txt, and the habit that it teaches: an opening and a signature that no other model has."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

OPENING, SIGNATURE = "Ahoy!", "-- Captain Quill"
FILE = Path(__file__).with_name("lessons.txt")


@dataclass(frozen=True, slots=True)
class Lesson:
    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class Question:
    """A question that is not taught; `word` must be in its answer in addition to the habit."""

    text: str
    word: str = ""

    def is_met(self, answer: str) -> bool:
        answer = answer.strip()
        return answer.startswith(OPENING) and answer.endswith(SIGNATURE) and self.word in answer


def read() -> tuple[list[Lesson], list[Question]]:
    taught, asked, section = [], [], ""
    for line in FILE.read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            section = line
            continue
        question, _, more = (word.strip() for word in line.partition("|"))
        if section == "[teach]":
            taught.append(Lesson(question, f"{OPENING} {more} {SIGNATURE}"))
        else:
            asked.append(Question(question, more))
    return taught, asked
