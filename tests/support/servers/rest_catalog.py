"""An Iceberg REST catalog on a local port: the requests a sink makes, answered from an SQLite catalog.

`faults` says what happens to the next commits: nothing, a lost answer, or a status without the work.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any

from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.table import CommitTableRequest, Table

LOST_ANSWER = "lost answer"
STATUS = {
    NoSuchTableError: 404,
    NoSuchNamespaceError: 404,
    NamespaceAlreadyExistsError: 409,
    TableAlreadyExistsError: 409,
    CommitFailedException: 409,
}


class RestCatalogServer(ThreadingHTTPServer):
    """Serves one warehouse."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        uri = f"sqlite:///{folder / 'rest.db'}"
        self.catalog = SqlCatalog("rest", uri=uri, warehouse=f"file://{folder / 'warehouse'}")
        self.lock = Lock()
        self.faults: list[str | int] = []
        """For each of the next commits: LOST_ANSWER, or a status that is answered instead."""
        self.commits = 0
        """How many commits were done."""

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def rest_catalog(folder: Path) -> Iterator[RestCatalogServer]:
    """A running server."""
    with RestCatalogServer(folder) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: RestCatalogServer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass

    def do_GET(self) -> None:
        self._answer(lambda parts: self._get(parts))

    def do_HEAD(self) -> None:
        self._answer(lambda parts: self._get(parts))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self._answer(lambda parts: self._post(parts, body))

    def _answer(self, work: Any) -> None:
        parts = self.path.partition("?")[0].strip("/").split("/")[1:]
        with self.server.lock:
            try:
                status, answer = 200, work(parts)
            except tuple(STATUS) as failure:
                status = next(code for kind, code in STATUS.items() if isinstance(failure, kind))
                answer = _error(status, failure)
            except _RefusedError as refused:
                status, answer = refused.status, _error(refused.status, refused)
        if answer is None:
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _get(self, parts: list[str]) -> dict[str, Any]:
        catalog = self.server.catalog
        match parts:
            case ["config"]:
                return {"defaults": {}, "overrides": {}}
            case ["namespaces", namespace]:
                return {"namespace": [namespace], "properties": catalog.load_namespace_properties(namespace)}
            case ["namespaces", namespace, "tables", name]:
                return _shown(catalog.load_table((namespace, name)))
        raise _RefusedError(501, f"no such request: GET {parts}")

    def _post(self, parts: list[str], body: str) -> dict[str, Any] | None:
        catalog = self.server.catalog
        match parts:
            case ["namespaces"]:
                asked = json.loads(body)
                catalog.create_namespace(tuple(asked["namespace"]), asked["properties"])
                return {"namespace": asked["namespace"], "properties": asked["properties"]}
            case ["namespaces", namespace, "tables"]:
                wanted = CreateTableRequest.model_validate({"location": None, **json.loads(body)})
                return _shown(
                    catalog.create_table(
                        (namespace, wanted.name),
                        wanted.table_schema,
                        location=wanted.location,
                        partition_spec=wanted.partition_spec,
                        sort_order=wanted.write_order,
                        properties=wanted.properties,
                    )
                )
            case ["namespaces", namespace, "tables", name]:
                # Spark leaves the name to the address.
                asked = {"identifier": {"namespace": [namespace], "name": name}, **json.loads(body)}
                return self._commit(CommitTableRequest.model_validate(asked), (namespace, name))
            case ["namespaces", _, "tables", _, "metrics"]:
                return {}
        raise _RefusedError(501, f"no such request: POST {parts}")

    def _commit(self, request: CommitTableRequest, name: tuple[str, str]) -> dict[str, Any] | None:
        fault = self.server.faults.pop(0) if self.server.faults else None
        if isinstance(fault, int):
            raise _RefusedError(fault, "not now")
        catalog = self.server.catalog
        catalog.commit_table(catalog.load_table(name), request.requirements, request.updates)
        self.server.commits += 1
        return None if fault == LOST_ANSWER else _shown(catalog.load_table(name))


class _RefusedError(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def _shown(table: Table) -> dict[str, Any]:
    metadata = json.loads(table.metadata.model_dump_json())
    return {"metadata-location": table.metadata_location, "metadata": metadata, "config": {}}


def _error(status: int, failure: Exception) -> dict[str, Any]:
    return {"error": {"message": str(failure), "type": type(failure).__name__, "code": status}}
