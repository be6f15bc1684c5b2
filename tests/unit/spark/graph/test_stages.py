"""A graph cut into stages: what runs together, what is exported, what is kept."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.spark.totals import Totals

from lakestate.errors import InvalidInputError
from lakestate.spark.graph.checks import check_names
from lakestate.spark.graph.nodes import (
    ApplyNode,
    ConnectNode,
    Graph,
    KeyByNode,
    LateRowsNode,
    SinkNode,
    SourceNode,
    TransformNode,
)
from lakestate.spark.graph.stages import forks_of, stages_of

ANY: Any = None


class Drawing:
    """A graph drawn without Spark: no DataFrame is ever asked for anything."""

    def __init__(self) -> None:
        self.graph = Graph()

    def source(self, name: str = "in") -> Any:
        return self.graph.add(SourceNode(name, ANY))

    def key(self, parent: Any) -> Any:
        return self.graph.add(KeyByNode(parent, ("user",)))

    def transform(self, parent: Any) -> Any:
        return self.graph.add(TransformNode(parent, ANY))

    def apply(self, parent: Any, name: str) -> Any:
        return self.graph.add(ApplyNode(parent, name, Totals()))

    def sink(self, parent: Any, name: str) -> Any:
        return self.graph.add(SinkNode(parent, name, ANY))

    def shown(self) -> list[tuple[list[str], list[str]]]:
        return [
            ([step.step_id for step in stage.steps], [step.step_id for step in stage.exported])
            for stage in stages_of(self.graph)
        ]


@pytest.fixture
def drawing() -> Drawing:
    return Drawing()


class TestStages:
    def test_a_chain_without_a_new_key_is_one_stage(self, drawing: Drawing) -> None:
        first = drawing.apply(drawing.key(drawing.transform(drawing.source())), "a")
        drawing.sink(drawing.apply(first, "b"), "out")
        assert drawing.shown() == [(["a", "b", "out"], [])]
        (stage,) = stages_of(drawing.graph)
        assert [stage.parent_number(step) for step in stage.steps] == [None, 0, 1]

    def test_steps_that_share_a_keyed_stream_share_its_routing(self, drawing: Drawing) -> None:
        keyed = drawing.key(drawing.source())
        first = drawing.apply(keyed, "a")
        drawing.apply(keyed, "b")
        drawing.sink(first, "out")
        drawing.sink(first, "copy")
        assert drawing.shown() == [(["a", "b", "out", "copy"], [])]
        assert forks_of(drawing.graph, stages_of(drawing.graph)) == set()

    def test_a_new_key_begins_a_stage_and_exports_what_it_needs(self, drawing: Drawing) -> None:
        first = drawing.apply(drawing.key(drawing.source()), "a")
        drawing.apply(drawing.key(drawing.transform(first)), "b")
        drawing.sink(first, "out")
        assert drawing.shown() == [(["a", "out"], ["a"]), (["b"], [])]

    def test_a_stage_comes_after_those_it_needs_in_whatever_order_they_were_drawn(
        self, drawing: Drawing
    ) -> None:
        keyed = drawing.key(drawing.source())
        right = drawing.key(drawing.source("other"))
        first = drawing.apply(keyed, "a")
        second = drawing.key(first)
        both = drawing.graph.add(ConnectNode(second, right))
        drawing.apply(both, "join")
        assert drawing.shown() == [(["a"], ["a"]), (["join"], [])]

    def test_rows_that_several_stages_need_are_kept(self, drawing: Drawing) -> None:
        source = drawing.source()
        clean = drawing.transform(source)
        drawing.apply(drawing.key(clean), "a")
        drawing.apply(drawing.key(clean), "b")
        assert forks_of(drawing.graph, stages_of(drawing.graph)) == {id(clean)}

    def test_late_rows_beside_the_others_need_the_source_twice(self, drawing: Drawing) -> None:
        source = drawing.source()
        drawing.apply(drawing.key(source), "a")
        drawing.sink(drawing.graph.add(LateRowsNode(source)), "late")
        assert forks_of(drawing.graph, stages_of(drawing.graph)) == {id(source)}


class TestNames:
    def test_two_steps_with_one_id_are_refused(self, drawing: Drawing) -> None:
        first = drawing.apply(drawing.key(drawing.source()), "a")
        with pytest.raises(InvalidInputError, match="have the same id; found a"):
            drawing.sink(first, "a")

    def test_two_sources_with_one_name_are_refused(self, drawing: Drawing) -> None:
        drawing.sink(drawing.source(), "a")
        drawing.sink(drawing.source(), "b")
        with pytest.raises(InvalidInputError, match="sources have the same id; found in"):
            check_names(drawing.graph)

    def test_a_source_that_leads_nowhere_is_refused(self, drawing: Drawing) -> None:
        drawing.sink(drawing.source(), "a")
        drawing.key(drawing.source("idle"))
        with pytest.raises(InvalidInputError, match="found idle"):
            check_names(drawing.graph)

    def test_a_bad_id_is_refused(self, drawing: Drawing) -> None:
        drawing.sink(drawing.source(), "a/b")
        with pytest.raises(InvalidInputError, match="not a valid operator name"):
            check_names(drawing.graph)

    def test_an_empty_pipeline_is_refused(self, drawing: Drawing) -> None:
        with pytest.raises(InvalidInputError, match="needs a source"):
            check_names(drawing.graph)
