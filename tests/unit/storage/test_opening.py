from __future__ import annotations

import os
import pickle
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from obstore.store import AzureStore

from lakestate.config import RetryPolicy, StoreConfig
from lakestate.errors import InvalidInputError, MissingExtraError, NotFoundError
from lakestate.storage import open_store
from lakestate.storage.remote.location import prefix_of
from lakestate.storage.remote.obstore_client import client_of


@pytest.mark.parametrize("url", ["ftp://host/x", "s3a://bucket/x", "s3:/bucket", "S3 ://x"])
def test_an_unknown_scheme_is_refused_with_what_there_is(url: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        open_store(url)
    assert caught.value.object_name == url
    assert caught.value.expected == (
        "file://, s3://, gs://, az://, abfss://, abfs://, wasbs://, wasb://, memory://"
    )


@pytest.mark.parametrize("url", ["s3://", "s3:///prefix", "gs://", "az://", "memory://"])
def test_a_url_without_a_bucket_is_refused(url: str) -> None:
    with pytest.raises(InvalidInputError, match="names no bucket"):
        open_store(url, {} if url.startswith("memory") else {"skip_signature": "true"})


@pytest.mark.parametrize("url", ["memory://x/../y", "memory://x/a//b", "memory://x/.lakestate"])
def test_an_illegal_prefix_is_refused(url: str) -> None:
    with pytest.raises(InvalidInputError):
        open_store(url)


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("s3://bucket/prefix", {"region": "eu-west-1", "access_key_id": "k", "secret_access_key": "s"}),
        ("s3://bucket", {"aws_region": "eu-west-1", "aws_endpoint": "http://127.0.0.1:9"}),
        ("gs://bucket/prefix", {"skip_signature": "true"}),
        ("az://container/prefix", {"account_name": "a", "account_key": "Zm9v"}),
        ("abfss://container@a.dfs.core.windows.net/prefix", {"account_key": "Zm9v"}),
        ("wasbs://container@a.blob.core.windows.net", {"account_name": "a", "account_key": "Zm9v"}),
        ("abfs://container/prefix", {"account_name": "a", "account_key": "Zm9v"}),
    ],
)
def test_a_store_opens_and_pickles_without_its_server(url: str, options: dict[str, str]) -> None:
    store = open_store(url, options)
    assert store.url == pickle.loads(pickle.dumps(store)).url == url


def test_an_azure_url_names_container_account_and_prefix() -> None:
    config = StoreConfig("abfss://lake@acme.dfs.core.windows.net/a%20b/c", {"account_key": "Zm9v"})
    client = client_of(config)
    assert isinstance(client, AzureStore)
    assert (client.config["container_name"], client.config["account_name"]) == ("lake", "acme")
    assert prefix_of(config) == "a b/c/"


@pytest.mark.parametrize(
    ("url", "options", "found"),
    [
        ("abfss://lake@acme.example.com/x", {}, "acme.example.com"),
        ("abfss://lake@acme.dfs.core.windows.net/x", {"account_name": "other"}, "account_name other"),
    ],
)
def test_an_azure_account_that_the_url_does_not_reach_is_refused(
    url: str, options: dict[str, str], found: str
) -> None:
    with pytest.raises(InvalidInputError, match=rf"cannot be reached this way.*{found}.*use az://"):
        open_store(url, {"account_key": "Zm9v", **options})


def test_a_path_is_a_store_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    open_store(tmp_path / "state").put("object", b"data")
    assert open_store("state").get("object").data == b"data"
    assert (tmp_path / "state/object").read_bytes() == b"data"


def test_two_stores_of_one_memory_share_its_objects() -> None:
    name = uuid.uuid4().hex
    open_store(f"memory://{name}/prefix").put("object", b"data")
    assert open_store(f"memory://{name}").get("prefix/object").data == b"data"
    assert open_store(f"memory://{name}/prefix/").get("object").data == b"data"
    with pytest.raises(NotFoundError):
        open_store(f"memory://{name}/pre").get("object")
    assert list(open_store(f"memory://{name}/pre").list()) == []


def test_options_are_added_to_a_configuration() -> None:
    config = StoreConfig("s3://bucket", {"region": "x"}, RetryPolicy(deadline_ms=1))
    with pytest.raises(InvalidInputError, match="found wrong"):
        open_store(config, {"wrong": "1"})


def test_opening_local_files_imports_no_client_library() -> None:
    program = "\n".join(
        [
            "import sys",
            "from lakestate.storage import open_store",
            "open_store('file:///tmp/x')",
            "print(sorted({'obstore', 'boto3', 'botocore'} & set(sys.modules)))",
        ]
    )
    source = Path(sys.modules["lakestate.storage"].__file__ or "").parents[2]
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(source)},
    )
    assert done.stdout.strip() == "[]"


def test_uploads_on_s3_name_the_extra_that_they_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "botocore", None)
    monkeypatch.delitem(sys.modules, "lakestate.storage.multipart.s3", raising=False)
    monkeypatch.delitem(sys.modules, "lakestate.storage.remote.s3_client", raising=False)
    store = open_store("s3://bucket", {"region": "x"})
    with pytest.raises(MissingExtraError, match=r"lakestate\[s3\]"):
        _ = store.uploads
