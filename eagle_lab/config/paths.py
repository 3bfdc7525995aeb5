"""Where the shipped configs and suites are, in a checkout and in an installed wheel."""

from __future__ import annotations

from pathlib import Path


def package_dir() -> Path:
    return Path(__file__).resolve().parents[1]


def conf_dir() -> Path:
    """eagle_lab/conf in a wheel (mapped there by the build), conf/ beside the package in a checkout."""
    packaged = package_dir() / "conf"
    return packaged if packaged.is_dir() else package_dir().parent / "conf"
