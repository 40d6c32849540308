"""What a list can be asked for: the parameters of a query string, described once for its page and the API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

#: Columns of figures, whose large ones come first unless `dir` says otherwise.
_LARGE_FIRST = frozenset({"held", "lag", "unread", "behind", "batch"})


def _without_nul(value: str) -> str:
    # PostgreSQL takes none, and no name has one: what cannot be shown is written \xNN.
    if "\0" in value:
        raise ValueError(r"names hold no NUL; a byte that cannot be shown is written \xNN")
    return value


#: Text that is compared with names as the database holds them.
Name = Annotated[str, AfterValidator(_without_nul)]


class Criteria(BaseModel):
    """The parameters of a list; each field's alias, or its name, is the parameter in an address.

    A field's type, bounds and default are the parameter's. "" and None ask for nothing.
    """

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    #: Parameters of the API that no page has.
    api_only: ClassVar[frozenset[str]] = frozenset()


class Sorted(Criteria):
    """The order of a list: `sort` is a column."""

    sort: str
    dir: Literal["asc", "desc"] = Field(
        default_factory=lambda data: "desc" if data["sort"] in _LARGE_FIRST else "asc"
    )

    @property
    def descending(self) -> bool:
        return self.dir == "desc"


def parameters(criteria: type[Criteria]) -> Mapping[str, FieldInfo]:
    """The fields of a list by their parameters."""
    return {field.alias or name: field for name, field in criteria.model_fields.items()}


def choices(criteria: type[Criteria], parameter: str) -> Sequence[str]:
    """Every word that a parameter takes, in the order of its type; empty where it takes any."""
    return [word for word in _words(parameters(criteria)[parameter].annotation) if word]


def _words(annotation: Any) -> Iterator[str]:
    if annotation is bool:
        yield from ("true", "false")
    elif isinstance(annotation, type) and issubclass(annotation, Enum):
        yield from (member.value for member in annotation)
    elif get_origin(annotation) is Literal:
        yield from map(str, get_args(annotation))
    else:
        for part in get_args(annotation):
            yield from _words(part)


def given(**conditions: object) -> Mapping[str, object]:
    """Those conditions of a filter for which a value was asked."""
    return {name: value for name, value in conditions.items() if value not in ("", None)}
