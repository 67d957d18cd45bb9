"""Conditions on tags, such as `language == 'en' and safety < .5`: parsed and computed here, never run as code.

The grammar is a small part of Python's: names of tags, numbers, texts, true, false and none, lists of these,
comparisons (also chained, `in` and `not in`), `and`, `or`, `not`, and + - * / of numbers. There are no calls, no
attributes and no indices. A comparison with a tag that has no value (none), or of things that cannot be compared, is
false.

The top-level parts of a conjunction are its clauses: what is removed is counted by the first clause that is false.
"""

import ast
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tertulia.core.dialogue import Json
from tertulia.core.errors import UsageError

MAX_LENGTH = 2000
MAX_DEPTH = 30
_HINT = "Write a condition like: language == 'en' and safety < 0.5 and words / turns >= 3"
_ARITHMETIC: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_ORDER: dict[type[ast.cmpop], Callable[[Json, Json], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_CONSTANTS = {"true": True, "false": False, "none": None}
Values = Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Clause:
    """One part of a condition."""

    text: str
    node: ast.expr

    def holds(self, values: Values) -> bool:
        """Whether it is true of something with these tags."""
        return _truth(_value(self.node, values))


@dataclass(frozen=True, slots=True)
class Condition:
    """A parsed condition."""

    clauses: tuple[Clause, ...]
    names: frozenset[str]
    """The tags that it refers to."""

    def failed(self, values: Values) -> str | None:
        """The first clause that is false, or None if the condition holds."""
        return next((clause.text for clause in self.clauses if not clause.holds(values)), None)


def parse(text: str) -> Condition:
    """Parse a condition; what is not in the grammar is an error.

    >>> condition = parse("language in ['en', 'de'] and 3 <= words < 500")
    >>> sorted(condition.names), condition.failed({"language": "en", "words": 2})
    (['language', 'words'], '3 <= words < 500')
    """
    if len(text) > MAX_LENGTH:
        raise UsageError(f"The condition is longer than {MAX_LENGTH} characters.", hint=_HINT)
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise UsageError(f"The condition {_short(text)} is not well formed: {error.msg}.", hint=_HINT) from None
    except (ValueError, RecursionError, MemoryError):  # a null byte; too many brackets
        raise UsageError(f"The condition {_short(text)} is not well formed.", hint=_HINT) from None
    parts = tree.values if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And) else [tree]
    for part in parts:
        _check(part, MAX_DEPTH)
    names = frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name)) - _CONSTANTS.keys()
    return Condition(tuple(Clause(_source(text, part), part) for part in parts), names)


def _source(text: str, node: ast.expr) -> str:
    return " ".join((ast.get_source_segment(text.strip(), node) or ast.unparse(node)).split())


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


def _check(node: ast.AST, depth: int) -> None:
    if depth == 0:
        raise UsageError("The condition is nested too deeply.", hint=_HINT)
    if not _is_allowed(node):
        raise UsageError(f"A condition cannot contain {_short(ast.unparse(node))}.", hint=_HINT)
    for child in _operands(node):
        _check(child, depth - 1)


def _is_allowed(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str | int | float | None)
    if isinstance(node, ast.BinOp):
        return type(node.op) in _ARITHMETIC
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Not | ast.USub | ast.UAdd)
    if isinstance(node, ast.Compare):
        return all(type(op) in _ORDER or isinstance(op, ast.Eq | ast.NotEq | ast.In | ast.NotIn) for op in node.ops)
    return isinstance(node, ast.Name | ast.BoolOp | ast.List | ast.Tuple)


def _operands(node: ast.AST) -> Iterator[ast.expr]:
    return (child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr))


def _value(node: ast.expr, values: Values) -> Json:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return _CONSTANTS[node.id] if node.id in _CONSTANTS else values.get(node.id)
    if isinstance(node, ast.List | ast.Tuple):
        return [_value(item, values) for item in node.elts]
    if isinstance(node, ast.BoolOp):
        truths = (_truth(_value(item, values)) for item in node.values)
        return all(truths) if isinstance(node.op, ast.And) else any(truths)
    if isinstance(node, ast.UnaryOp):
        operand = _value(node.operand, values)
        if isinstance(node.op, ast.Not):
            return not _truth(operand)
        return (-operand if isinstance(node.op, ast.USub) else operand) if _is_number(operand) else None
    if isinstance(node, ast.BinOp):
        return _computed(node, _value(node.left, values), _value(node.right, values))
    assert isinstance(node, ast.Compare)
    sides = [_value(side, values) for side in (node.left, *node.comparators)]
    return all(_compared(op, a, b) for op, a, b in zip(node.ops, sides, sides[1:], strict=False))


def _computed(node: ast.BinOp, left: Json, right: Json) -> float | None:
    if not (_is_number(left) and _is_number(right)):
        return None
    try:
        return _ARITHMETIC[type(node.op)](float(left), float(right))
    except (ZeroDivisionError, OverflowError):
        return None


def _compared(op: ast.cmpop, left: Json, right: Json) -> bool:
    if isinstance(op, ast.Eq):
        return bool(left == right)
    if isinstance(op, ast.NotEq):
        return bool(left != right)
    if isinstance(op, ast.In | ast.NotIn):
        inside = left in right if isinstance(right, list) or (_is_text(left) and _is_text(right)) else False
        return inside != isinstance(op, ast.NotIn)
    if _is_number(left) and _is_number(right):
        return not (math.isnan(left) or math.isnan(right)) and _ORDER[type(op)](left, right)
    return _is_text(left) and _is_text(right) and _ORDER[type(op)](left, right)


def _truth(value: Json) -> bool:
    return bool(value)


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float)


def _is_text(value: Json) -> bool:
    return isinstance(value, str)
