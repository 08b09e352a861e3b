"""Each kind of store keeps the contract of stores."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import icechunk
import pytest
import xarray as xr
from zarr.storage import MemoryStore

from sweepkit.stores.zarr import ZarrStore
from sweepkit.targets import target as target_of
from tests.contracts import StoreContract
from tests.stores.conftest import Bucket


class TestBucket(StoreContract):
    @pytest.fixture(autouse=True)
    def _at(self, bucket: Bucket) -> None:
        self.bucket = bucket

    @pytest.fixture
    def target(self) -> ZarrStore:
        return target_of(self.bucket.url, self.bucket.options)

    @pytest.fixture
    def other(self) -> ZarrStore:
        return target_of(self.bucket.url, self.bucket.options)

    def plain(self, target: Any) -> xr.Dataset:
        opened: xr.Dataset = xr.open_zarr(self.bucket.url, storage_options=self.bucket.options)
        return opened


class TestMemory(StoreContract):
    @pytest.fixture
    def place(self) -> str:
        return f"memory://{secrets.token_hex(8)}.zarr"


class TestStoreObject(StoreContract):
    @pytest.fixture
    def place(self) -> MemoryStore:
        return MemoryStore()

    def plain(self, target: Any) -> xr.Dataset:
        opened: xr.Dataset = xr.open_zarr(target.root.store._store)
        return opened


class TestIcechunk(StoreContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> str:
        return str(tmp_path / "a.icechunk")

    def plain(self, target: Any) -> xr.Dataset:
        storage = icechunk.local_filesystem_storage(target.path)
        session = icechunk.Repository.open(storage).readonly_session(branch="main")
        opened: xr.Dataset = xr.open_zarr(session.store)
        return opened
