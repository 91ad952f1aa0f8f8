"""What Pydantic emits for ordinary models: instances are accepted, and whatever is generated is read back."""

from __future__ import annotations

import datetime
import enum
import json
import random
import uuid
from decimal import Decimal
from typing import Annotated, Any, Literal, Optional, Union

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from support.grammars.reference import Grammar

from llamad.chat.schema import to_grammar


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 10


class Address(BaseModel):
    """Where someone lives."""

    street: str
    number: Annotated[int, Field(ge=1, le=9999)]
    zip: Annotated[str, Field(pattern=r"^\d{5}(-\d{4})?$")] = "00000"


class Person(BaseModel):
    model_config = ConfigDict(extra="forbid", title="A person")

    name: Annotated[str, Field(min_length=1, max_length=20, description="in full", examples=["Ada"])]
    age: Optional[int] = None  # noqa: UP045
    email: str | None = Field(default=None, deprecated=True)
    addresses: list[Address] = []
    colours: Annotated[list[Colour], Field(min_length=1, max_length=3)]
    level: Level = Level.LOW
    kind: Literal["human", "llama"]
    fixed: Literal["v1"] = "v1"
    scores: dict[str, float] = {}
    by_colour: dict[Colour, int] = {}
    by_id: dict[uuid.UUID, int] = {}
    tags: dict[Annotated[str, Field(pattern="^x-[a-z]+$")], bool] = {}
    point: tuple[float, float, str]
    many: tuple[int, ...] = ()
    born: datetime.date
    seen: datetime.datetime | None = None
    id: uuid.UUID
    balance: Decimal = Decimal("0")
    even: bool
    nothing: None = None
    anything: Any = None
    either: int | str | list[int] = 0


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: Annotated[int, Field(gt=0, lt=10)]


class Dog(BaseModel):
    kind: Literal["dog"]
    friends: list[Pet] = []


Pet = Annotated[Union[Cat, Dog], Field(discriminator="kind")]  # noqa: UP007
Dog.model_rebuild()


class Node(BaseModel):
    value: int
    left: Node | None = None
    right: Node | None = None


class Extra(BaseModel):
    model_config = ConfigDict(extra="allow")

    a: int
    b: str = ""


class Base(BaseModel):
    base: int


class Derived(Base):
    own: Base


SAMPLES: list[tuple[Any, list[Any]]] = [
    (
        Person,
        [
            Person(
                name="Zoë 🦙",
                age=7,
                addresses=[Address(street='"Main"\n', number=12, zip="12345-6789")],
                colours=[Colour.RED, Colour.GREEN],
                level=Level.HIGH,
                kind="llama",
                scores={"a": 1.5, "é": -2e-7},
                by_colour={Colour.GREEN: 3},
                by_id={uuid.UUID(int=5): 1},
                tags={"x-a": True},
                point=(1.0, 2.5, "z"),
                many=(1, 2, 3),
                born=datetime.date(2024, 2, 29),
                seen=datetime.datetime(2024, 1, 1, 12, 30, 5, 250000, tzinfo=datetime.UTC),
                id=uuid.UUID(int=2**127),
                balance=Decimal("12.50"),
                even=False,
                anything={"x": [1, None]},
                either=[1, 2],
            )
        ],
    ),
    (Pet, [Cat(kind="cat", lives=9), Dog(kind="dog", friends=[Cat(kind="cat", lives=1), Dog(kind="dog")])]),
    (Node, [Node(value=1, left=Node(value=2, right=Node(value=-3)))]),
    (Extra, [Extra(a=1, b="x", c=[1], d=None)]),  # type: ignore[call-arg]
    (Derived, [Derived(base=1, own=Base(base=2))]),
    (list[Node], [[], [Node(value=0)]]),
    (dict[str, Address], [{}, {"home": Address(street="", number=1)}]),
    (Optional[Colour], [None, Colour.RED]),  # noqa: UP045
]


@pytest.mark.parametrize("mode", ["validation", "serialization"])
@pytest.mark.parametrize("index", range(len(SAMPLES)))
def test_models(index: int, mode: Any) -> None:
    model, values = SAMPLES[index]
    adapter: TypeAdapter[Any] = TypeAdapter(model)
    schema = adapter.json_schema(mode=mode)
    text, warnings = to_grammar(schema)
    assert warnings == []
    grammar = Grammar(text)
    for value in values:
        for written in (
            adapter.dump_json(value).decode(),
            json.dumps(adapter.dump_python(value, mode="json"), indent=2),
        ):
            assert grammar.accepts(written), written
    validator = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    source = random.Random(index)
    for _ in range(15):
        sentence = grammar.sentence(source, 300)
        validator.validate(json.loads(sentence))
        if '"balance"' not in sentence:  # a Decimal's schema may allow any string
            adapter.validate_json(sentence)
