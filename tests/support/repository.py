"""Where the repository is, for tests that read its pages, schemas and scripts."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
