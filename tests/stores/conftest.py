"""A real S3 API on loopback, for the session."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer


@dataclass(frozen=True)
class Bucket:
    """A bucket of a test's own.

    Attributes
    ----------
    url : str
        Of a store in it that is not there yet.
    name : str
    options : dict
        How it is reached.
    client : object
        Of boto3.
    """

    url: str
    name: str
    options: dict[str, Any]
    client: Any

    def listed(self, prefix: str = "") -> list[str]:
        """What is in it."""
        pages = self.client.get_paginator("list_objects_v2").paginate(
            Bucket=self.name, Prefix=prefix
        )
        return [one["Key"] for page in pages for one in page.get("Contents", ())]


Serve = Callable[[], ThreadedMotoServer]


@pytest.fixture(scope="session")
def serve() -> Iterator[Serve]:
    """Start a server of the S3 API; it is stopped with the session."""
    begun = []
    logging.getLogger("werkzeug").setLevel(logging.ERROR)

    def started() -> ThreadedMotoServer:
        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        begun.append(server)
        return server

    yield started
    for server in begun:
        server.stop()


@pytest.fixture(scope="session")
def endpoint(serve: Serve) -> str:
    """URL of an S3 API."""
    host, port = serve().get_host_and_port()
    return f"http://{host}:{port}"


def client_of(endpoint: str) -> Any:
    """A client of boto3."""
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id="key",
        aws_secret_access_key="secret",
        region_name="us-east-1",
    )


_numbers = itertools.count()


def made_bucket(endpoint: str) -> Bucket:
    """A new bucket."""
    name = f"bucket-{next(_numbers)}"
    client = client_of(endpoint)
    client.create_bucket(Bucket=name)
    options = {"endpoint_url": endpoint, "key": "key", "secret": "secret"}
    return Bucket(f"s3://{name}/runs/a.zarr", name, options, client)


@pytest.fixture
def bucket(endpoint: str) -> Bucket:
    """A bucket of the test's own."""
    return made_bucket(endpoint)
