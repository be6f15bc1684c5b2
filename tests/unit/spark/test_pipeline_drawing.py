"""What is refused while a pipeline is drawn. Drawing asks Spark for nothing: stand-ins will do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

import lakestate as ls


class Totals(ls.Operator):
    output = "user string, n bigint"
    totals = ls.KeyedTable(key="user string", value="n bigint")


class Both(ls.TwoInputOperator):
    pass


@pytest.fixture
def pipeline() -> ls.Pipeline:
    return ls.Pipeline("shop", "memory://drawing")


@pytest.fixture
def stream(pipeline: ls.Pipeline) -> Any:
    frame: Any = SimpleNamespace(isStreaming=True)
    return pipeline.source(frame, name="orders")


class TestRefused:
    @pytest.mark.parametrize(
        ("draw", "message"),
        [
            (
                lambda s: s.key_by("user").apply("totals", Totals),
                "operator totals is a class; found Totals; expected an object; write Totals(…)",
            ),
            (
                lambda s: s.key_by("user").connect(s.key_by("user")).apply("both", Both),
                "operator both is a class; found Both; expected an object; write Both(…)",
            ),
            (
                lambda s: s.apply("totals", ls.ParquetSink("memory://out")),
                "operator totals is of another type; found ParquetSink; expected Operator",
            ),
            (
                lambda s: s.sink("out", ls.ParquetSink),
                "sink out is a class; found ParquetSink; expected an object; write ParquetSink(…)",
            ),
            (
                lambda s: s.sink("out", "memory://out"),
                "sink out is of another type; found str; expected Sink",
            ),
            (
                lambda s: s.key_by("user").connect(s),
                "the stream to connect with is of another type; found SourceStream; expected KeyedStream",
            ),
            (
                lambda s: s.transform("amount > 0"),
                "a transform is not a function; found str; write lambda df: …",
            ),
            (lambda s: s.key_by(), 'key_by takes one or more columns; found none; write key_by("a", "b")'),
            (
                lambda s: s.key_by(["a", "b"]),
                """key_by takes one or more columns; found (['a', 'b'],); write key_by("a", "b")""",
            ),
        ],
    )
    def test_what_cannot_work_is_refused_where_it_is_written(
        self, stream: Any, draw: Callable[[Any], Any], message: str
    ) -> None:
        with pytest.raises(ls.InvalidInputError) as raised:
            draw(stream)
        assert str(raised.value) == f"{message} [invalid_input]"


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"idle_after": "1 minute"}, "idle_after='1 minute' and no event_time"),
        ({"idle_after": "0 seconds", "event_time": "ts"}, "idle_after='0 seconds'"),
    ],
)
def test_a_source_that_cannot_be_idle_is_refused(
    pipeline: ls.Pipeline, options: dict[str, str], found: str
) -> None:
    with pytest.raises(ls.InvalidInputError, match="source orders cannot be idle") as refused:
        pipeline.source(SimpleNamespace(isStreaming=True), name="orders", **options)  # type: ignore[arg-type]
    assert refused.value.found == found


class TestShown:
    def test_a_pipeline_shows_what_it_is_made_of(self, pipeline: ls.Pipeline, stream: Any) -> None:
        assert (
            repr(ls.Pipeline("new", "memory://state")) == "Pipeline('new', 'memory://state', parallelism=4)"
        )
        stream.key_by("user").apply("totals", Totals()).sink("out", ls.ParquetSink("memory://out"))
        assert repr(pipeline) == (
            "Pipeline('shop', 'memory://drawing', parallelism=4, sources=['orders'], "
            "operators=['totals'], sinks=['out'])"
        )

    def test_a_pipeline_shows_no_secret(self) -> None:
        config = ls.StoreConfig("s3://bucket/x", {"secret_access_key": "s3cr3t"})
        assert repr(ls.Pipeline("shop", config)) == "Pipeline('shop', 's3://bucket/x', parallelism=4)"

    def test_a_stream_shows_the_way_of_its_rows(self, stream: Any) -> None:
        def clean(frame: Any) -> Any:
            return frame

        keyed = stream.transform(clean).key_by("user", "lower(town) AS town")
        totals = keyed.apply("totals", Totals())
        both = totals.key_by("user").connect(stream.late_rows().key_by("user"))
        left = "orders → clean → key_by(user, lower(town) AS town) → totals → key_by(user)"
        sides = f"({left}) with (orders → late_rows → key_by(user))"
        assert [repr(each) for each in (stream, keyed, totals, both, both.apply("both", Both()))] == [
            "SourceStream(orders)",
            "KeyedStream(orders → clean → key_by(user, lower(town) AS town))",
            "Stream(orders → clean → key_by(user, lower(town) AS town) → totals)",
            f"ConnectedStreams({sides})",
            f"Stream({sides} → both)",
        ]


@pytest.mark.parametrize("given", ["state", Path("state"), "./state"])
def test_a_checkpoint_may_be_a_plain_path(
    given: str | Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    backend = ls.Pipeline("shop", given)._backend
    backend.claim("shop")
    assert (tmp_path / "state/shop/generation.json").exists()
    assert repr(backend) == f"ParquetBackend('file://{tmp_path}/state')"


def test_a_sink_may_be_given_a_plain_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert (
        ls.ParquetSink("out").url == ls.JsonLinesSink(str(tmp_path / "out")).url == f"file://{tmp_path}/out"
    )
