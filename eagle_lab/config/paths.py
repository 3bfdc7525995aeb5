"""Where the shipped configs and suites are, in a checkout and in a wheel; what ~ and a sweep's directory are."""

from __future__ import annotations

from pathlib import Path

from eagle_lab.config.errors import LabError


def package_dir() -> Path:
    return Path(__file__).resolve().parents[1]


def conf_dir() -> Path:
    """eagle_lab/conf in a wheel (mapped there by the build), conf/ beside the package in a checkout."""
    packaged = package_dir() / "conf"
    return packaged if packaged.is_dir() else package_dir().parent / "conf"


def in_sweep(out: Path) -> bool:
    """Whether a verb's directory is a sweep's point: the sweep names and groups it, and reports on all of them."""
    return (out / "status.json").exists()


def head_directory(key: str, path: str) -> Path:
    """An exported head's directory; of a training's the newest export in it. LabError where neither is there."""
    given = expanded(key, path)
    if (given / "config.json").is_file():
        return given
    made = sorted(given.glob("export/*/config.json"), key=lambda f: f.stat().st_mtime)
    if not path or not made:
        wanted = "the directory of a head by any trainer"
        if given.is_file() and (given.parent / "config.json").is_file():
            wanted = f"its directory, {given.parent},"
        what = "no config.json is in it" if given.is_dir() and path else "a file" if given.exists() and path else ""
        raise LabError(
            f"{key}={path}: {what or 'no such directory'}. Give {wanted} "
            "(config.json and weights; ours: outputs/heads/.../export/sglang-...), or a training's, "
            "outputs/heads/NAME-..."
        )
    return made[-1].parent


def expanded(key: str, path: str) -> Path:
    """`path` with a leading ~ or ~user written out; LabError where no such home directory is known."""
    try:
        return Path(path).expanduser()
    except RuntimeError as e:
        raise LabError(f"{key}={path}: no such home directory is known here. Set HOME, or give a full path.") from e
