"""Keyed functions: code for one key at a time, with typed state and timers. Rows still move in columns."""

from lakestate.operators.keyed_function.function import KeyedFunction
from lakestate.operators.keyed_function.operator import KeyedFunctionOperator
from lakestate.operators.keyed_function.state import KeyState, ListState, MapState, ValueState

__all__ = ["KeyState", "KeyedFunction", "KeyedFunctionOperator", "ListState", "MapState", "ValueState"]
