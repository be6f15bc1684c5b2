from __future__ import annotations

import pickle
from datetime import timedelta
from pathlib import Path

import pytest

from lakestate.config import RetryPolicy, StoreConfig, duration_us, size_bytes
from lakestate.errors import InvalidInputError

SECRET = "s3cr3t-value"


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (0, 0),
        (42, 42),
        ("1b", 1),
        ("128MB", 128_000_000),
        ("128 MiB", 128 << 20),
        (" 1.5 kib ", 1536),
        ("2gb", 2_000_000_000),
        ("1TiB", 1 << 40),
    ],
)
def test_a_size_is_read_as_people_write_it(written: int | str, expected: int) -> None:
    assert size_bytes(written) == expected


@pytest.mark.parametrize("written", [-1, True, "", "128", "MB", "-1MB", "1 parsec", "1MB2", None, 1.5])
def test_what_is_not_a_size_is_refused(written: object) -> None:
    with pytest.raises(InvalidInputError):
        size_bytes(written)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (timedelta(0), 0),
        (timedelta(milliseconds=1), 1000),
        ("10 seconds", 10_000_000),
        ("1 second", 1_000_000),
        ("5 min", 300_000_000),
        ("5 mins", 300_000_000),
        ("250ms", 250_000),
        ("7us", 7),
        ("1.5h", 5_400_000_000),
        ("2 Days", 172_800_000_000),
        ("1 week", 604_800_000_000),
    ],
)
def test_a_duration_is_read_as_people_write_it(written: timedelta | str, expected: int) -> None:
    assert duration_us(written) == expected


@pytest.mark.parametrize(
    "written", ["", "10", "seconds", "-1 s", timedelta(seconds=-1), 10, None, "1 fortnight"]
)
def test_what_is_not_a_duration_is_refused(written: object) -> None:
    with pytest.raises(InvalidInputError):
        duration_us(written)  # type: ignore[arg-type]


def test_a_configuration_names_its_options_and_shows_no_value() -> None:
    config = StoreConfig("s3://bucket/state", {"region": "eu", "secret_access_key": SECRET})
    assert (
        repr(config) == str(config) == "StoreConfig('s3://bucket/state', options=region, secret_access_key)"
    )
    assert repr(StoreConfig("memory://x")) == "StoreConfig('memory://x', options=none)"


@pytest.mark.parametrize(
    "url",
    [
        f"s3://key:{SECRET}@bucket/x",
        f"s3://{SECRET}@bucket",
        f"s3://bucket/x?X-Amz-Signature={SECRET}",
        f"az://container/x#{SECRET}",
        f"az://{SECRET}@account.blob.core.windows.net/x",
        f"abfss://container:{SECRET}@account.dfs.core.windows.net/x",
        f"abfss://Key={SECRET}@account.dfs.core.windows.net/x",
        f"abfss://a@{SECRET}@account.dfs.core.windows.net/x",
        f"wasbs://container@account.blob.core.windows.net/x?sig={SECRET}",
    ],
)
def test_a_url_with_a_credential_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        StoreConfig(url)
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(caught.value)


@pytest.mark.parametrize("scheme", ["abfss", "abfs", "wasbs", "wasb"])
def test_the_container_of_an_azure_url_is_not_a_credential(scheme: str) -> None:
    url = f"{scheme}://lake-1@account.dfs.core.windows.net/state"
    assert StoreConfig(url).url == url


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("/data/state", "file:///data/state"),
        ("/data/state/", "file:///data/state"),
        ("/data/my state#1?", "file:///data/my%20state%231%3F"),
        (Path("/data/state"), "file:///data/state"),
        ("state", "file://{cwd}/state"),
        (Path("../state"), "file://{parent}/state"),
        ("./a:b", "file://{cwd}/a%3Ab"),
        ("~/state", "file://{home}/state"),
        ("file:/data/state", "file:///data/state"),
        ("file:///data/state/", "file:///data/state/"),
        ("s3://bucket/state", "s3://bucket/state"),
    ],
)
def test_a_location_is_a_url_or_a_path(
    location: str | Path, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/ann")
    expected = expected.format(cwd=tmp_path, parent=tmp_path.parent, home="/home/ann")
    assert StoreConfig(location).url == expected
    # Another process has another working directory.
    pickled = pickle.dumps(StoreConfig(location))
    monkeypatch.chdir("/")
    assert pickle.loads(pickled).url == expected


@pytest.mark.parametrize("location", ["", " ", None, 7, b"/data"])
def test_what_is_not_a_location_is_refused(location: object) -> None:
    with pytest.raises(InvalidInputError, match="not the location of a store"):
        StoreConfig(location)  # type: ignore[arg-type]


def test_a_configuration_pickles_whole() -> None:
    config = StoreConfig("s3://bucket", {"secret_access_key": SECRET}, RetryPolicy(deadline_ms=7))
    assert pickle.loads(pickle.dumps(config)) == config
    assert hash(pickle.loads(pickle.dumps(config))) == hash(config)


def test_a_configuration_cannot_be_changed_from_outside() -> None:
    options = {"region": "a"}
    config = StoreConfig("s3://bucket", options)
    options["region"] = "b"
    assert config.options["region"] == "a"
    with pytest.raises(TypeError):
        config.options["region"] = "c"  # type: ignore[index]


def test_other_options_or_another_policy_are_another_configuration() -> None:
    config = StoreConfig("s3://bucket", {"region": "a"})
    assert config == StoreConfig("s3://bucket", {"region": "a"})
    assert config != StoreConfig("s3://bucket", {"region": "b"})
    assert config != StoreConfig("s3://bucket", {"region": "a"}, RetryPolicy(deadline_ms=1))
