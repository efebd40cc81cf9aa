"""Types as people write them for structured output, for check_with_pydantic.py.

TYPES: what must compile, and whose answers both jsonschema and pydantic take.
LOOSE: as well, but pydantic's own schema allows more than its validation does; only jsonschema judges.
EARLIER: what pydantic 2.12.5 wrote for a type; judged by the type, where the pattern is anchored at both ends.
REFUSED: what must be refused, with a part of the message.
"""
import datetime
import enum
import ipaddress
import pathlib
import uuid
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, NamedTuple, Optional, TypeVar, Union

from pydantic import (AnyUrl, AwareDatetime, Base64Bytes, BaseModel, ConfigDict, EmailStr, Field, HttpUrl,
                      IPvAnyAddress, IPvAnyInterface, IPvAnyNetwork, NegativeInt, NonNegativeFloat, PositiveInt,
                      RootModel, SecretStr, StrictInt, StringConstraints, UUID1, UUID4, condecimal, conint, conlist,
                      constr)
from pydantic.dataclasses import dataclass
from typing_extensions import TypedDict


class Color(str, enum.Enum):
    red = "red"
    green = "green"
    blue = "blue"


class Level(enum.IntEnum):
    low = 1
    high = 10


class Address(BaseModel):
    street: str
    city: str = Field(description="where it is", examples=["Bern"])
    zip: constr(pattern=r"^\d{4,5}$")


class Person(BaseModel):
    name: str = Field(min_length=1, max_length=40)
    age: Annotated[int, Field(ge=0, le=150)]
    email: EmailStr | None = None
    addresses: list[Address] = []
    favourite: Color = Color.red


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", title="A title")
    kind: Literal["a", "b", 3, True, None]
    level: Level


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    known: int


class Node(BaseModel):
    value: int
    children: list["Node"] = Field(default=[], max_length=2)
    parent: Optional["Node"] = None


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: conint(gt=0, lt=10)


class Dog(BaseModel):
    kind: Literal["dog"]
    tricks: list[str]


class Lizard(BaseModel):
    kind: Literal["lizard", "gecko"]


class Owner(BaseModel):
    pet: Annotated[Union[Cat, Dog, Lizard], Field(discriminator="kind")]
    pets: list[Annotated[Union[Cat, Dog], Field(discriminator="kind")]] = []


class Times(BaseModel):
    day: datetime.date
    clock: datetime.time
    at: AwareDatetime
    maybe: datetime.datetime | None
    span: datetime.timedelta


class Net(BaseModel):
    v4: ipaddress.IPv4Address
    v6: ipaddress.IPv6Address
    any: IPvAnyAddress
    net4: ipaddress.IPv4Network
    net6: ipaddress.IPv6Network
    interface4: ipaddress.IPv4Interface
    interface: IPvAnyInterface
    network: IPvAnyNetwork
    link: HttpUrl
    other: AnyUrl


class Ids(BaseModel):
    any: uuid.UUID
    one: UUID1
    four: UUID4
    path: pathlib.Path
    secret: SecretStr
    raw: bytes
    encoded: Base64Bytes


class Point(NamedTuple):
    x: float
    y: float


class Movie(TypedDict, total=False):
    title: str
    year: PositiveInt


@dataclass
class Item:
    name: str
    price: NonNegativeFloat
    tags: tuple[str, ...] = ()


T = TypeVar("T")


class Page(BaseModel, Generic[T]):
    items: list[T]
    next: int | None = None


class Aliased(BaseModel):
    from_: str = Field(alias="from")
    max_count: int = Field(alias="maxCount", ge=1)


class Described(BaseModel):
    """A model with annotations everywhere."""
    model_config = ConfigDict(json_schema_extra={"examples": [{"unit": "C"}], "x-order": 3})
    unit: Literal["C", "F"] = Field("C", description="of what", deprecated=True, json_schema_extra={"x-hint": {"a": 1}})
    count: Annotated[int, Field(multiple_of=5, ge=0)] = 5
    code: Annotated[str, StringConstraints(pattern=r"^[A-Z]{2}-\d+$", max_length=8)]


class Maps(BaseModel):
    counts: dict[str, int]
    by_color: dict[Color, float]
    by_word: dict[Annotated[str, StringConstraints(pattern="^[a-z]+$", max_length=6)], bool]
    by_literal: dict[Literal["x", "y"], int]
    by_id: dict[uuid.UUID, str]
    nested: dict[str, dict[str, list[int]]]


TYPES = {
    "int": int, "float": float, "str": str, "bool": bool, "none": None, "any": Any, "dict": dict, "list": list,
    "object": dict[str, Any],
    "person": Person, "strict": Strict, "open": Open, "node": Node, "owner": Owner, "times": Times, "net": Net,
    "ids": Ids, "point": Point, "movie": Movie, "dataclass": Item, "page": Page[Person], "page of int": Page[int],
    "aliased": Aliased,
    "described": Described, "maps": Maps,
    "enum": Color, "int enum": Level, "literal": Literal["a", 1, None, False],
    "optional": Optional[Person], "union": Union[int, str, list[bool]], "nested union": list[Union[Cat, Address, None]],
    "tuple": tuple[int, str, bool], "long tuple": tuple[int, ...], "no tuple": tuple[()],
    "set of enum": set[Color], "frozen set": frozenset[Literal[1, 2, 3, 4]], "set of bool": set[bool],
    "conlist": conlist(int, min_length=2, max_length=4), "root": RootModel[list[Address]],
    "strict int": StrictInt, "negative": NegativeInt,
    "between": Annotated[float, Field(gt=-1.5, lt=2.25)], "large": Annotated[int, Field(ge=-(2**63), le=2**63 - 1)],
    "password": constr(pattern=r"^[a-z0-9]{3,12}$"),
}

LOOSE = {
    "decimal": Decimal,
    "price": condecimal(max_digits=5, decimal_places=2), "money": condecimal(max_digits=12, decimal_places=4, ge=0),
    "ratio": condecimal(gt=0, le=1), "email": EmailStr,
}

EARLIER = {
    "decimal of 2.12": (Decimal, {"type": "string", "pattern": r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$"}),
    "decimal or number of 2.12": (Decimal, {"anyOf": [
        {"type": "number"}, {"type": "string", "pattern": r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$"}]}),
    "places of 2.12": (Decimal, {"anyOf": [
        {"type": "number", "minimum": 0.0},
        {"type": "string", "pattern": r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d{0,4}0*$"}]}),
    "digits of 2.12": (Any, {
        "type": "string",
        "pattern": r"^(?!^[-+.]*$)[+-]?0*(?:\d{0,3}|(?=[\d.]{1,6}0*$)\d{0,3}\.\d{0,2}0*$)"}),
    "many digits of 2.12": (Any, {
        "type": "string", "pattern": r"^(?!^[-+.]*$)[+-]?0*(?:\d{0,12}|(?=[\d.]{1,13}0*$)\d*\.\d*0*$)"}),
}

REFUSED = {
    "set of str": (set[str], "uniqueItems"),
    "set of int": (set[int], "uniqueItems"),
}
