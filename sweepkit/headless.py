"""Notebooks run without anybody at the screen, by papermill."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweepkit.notebook import declared, unknown_words

__all__ = ["NotebookFailedError", "execute"]

POLICY = ("RunError", "TooManyErrorsError")
"""What the failure policy raises in a notebook, by name."""


class NotebookFailedError(RuntimeError):
    """A cell of a notebook raised; finished runs are kept, and the same call goes on.

    Attributes
    ----------
    raised : str
        The exception's type.
    by_policy : bool
        Whether the sweep's failure policy stopped it.
    """

    def __init__(self, text: str, raised: str) -> None:
        super().__init__(text)
        self.raised = raised
        self.by_policy = raised in POLICY


def execute(
    notebook: Path,
    executed: Path,
    values: Mapping[str, Any],
    *,
    cwd: Path | None = None,
    quiet: bool = False,
    checked: bool = True,
) -> None:
    """Run a notebook and write what it showed; what it prints appears, line by line.

    Parameters
    ----------
    notebook, executed : path
        Read and written; the second after each cell, also if one raises.
    values : mapping of str to object
        Parameters; plain numbers, text, lists and mappings.
    cwd : path, optional
        Folder in which it runs; by default the current one.
    quiet : bool
        Whether to print nothing.
    checked : bool
        Whether the notebook has to take each of the parameters.

    Raises
    ------
    ValueError
        If papermill or a kernel is missing, there is no such notebook, or it takes no such
        parameter: papermill would run on, with its own.
    NotebookFailedError
        If a cell raises.
    """
    try:
        import papermill
        from jupyter_client.kernelspec import NoSuchKernel
        from nbclient.exceptions import DeadKernelError
    except ModuleNotFoundError:
        raise ValueError("notebooks need papermill; pip install 'sweepkit[headless]'") from None
    if not notebook.is_file():
        raise ValueError(f"{notebook} is not there")
    if values and checked:
        known = declared(notebook)
        unknown = [name for name in values if name not in known]
        if unknown:
            raise ValueError(unknown_words(unknown, list(known)))
    shown = None if quiet else sys.stdout
    logging.getLogger("asyncio").addFilter(_of_no_dead_kernel)
    try:
        papermill.execute_notebook(
            str(notebook),
            str(executed),
            dict(values),
            kernel_name="python3",
            language="python",
            cwd=None if cwd is None else str(cwd),
            progress_bar=False,
            stdout_file=shown,
            stderr_file=None if quiet else sys.stderr,
        )
    except papermill.PapermillExecutionError as stopped:
        text = f"cell {stopped.exec_count}: {stopped.ename}: {stopped.evalue}; see {executed}"
        raise NotebookFailedError(text, stopped.ename) from None
    except NoSuchKernel:
        raise ValueError(
            "there is no kernel 'python3' to run notebooks; pip install ipykernel"
        ) from None
    except DeadKernelError as died:
        text = f"the notebook's kernel died; see {executed}"
        raise NotebookFailedError(text, type(died).__name__) from None


def _of_no_dead_kernel(record: logging.LogRecord) -> bool:
    """Whether a message is not of a kernel that an interrupt ended: that is told already."""
    return "DeadKernelError" not in str(record.exc_info)
