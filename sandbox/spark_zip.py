"""Make the archive for `spark-submit --py-files`: `python -m sandbox.spark_zip [FILE]`.

It holds Fenceline's modules for users' Spark, without Spark's own dependencies. Its bytes depend only on its
content, so that an unchanged archive has an unchanged checksum.
"""

import sys
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

ROOT = Path(__file__).parents[1]
PACKAGES = ("fenceline", "spark_listener", "spark_pipeline", "transaction_admin")
TARGET = Path("dist/fenceline-spark.zip")


def make_zip(target: Path) -> int:
    """Write the archive to `target`; return its number of files."""
    inside = (path for package in PACKAGES for path in (ROOT / package).rglob("*"))
    files = sorted(path for path in inside if path.suffix in (".py", ".json"))
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.partial")
    with ZipFile(partial, "w") as archive:
        for path in files:
            # The oldest date of the format: the time of a checkout is irrelevant.
            entry = ZipInfo(path.relative_to(ROOT).as_posix(), (1980, 1, 1, 0, 0, 0))
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, path.read_bytes(), ZIP_DEFLATED)
    partial.replace(target)
    return len(files)


def main(arguments: list[str]) -> int:
    """Make the archive at the path in the first argument; return the exit status."""
    target = Path(arguments[0]) if arguments else TARGET
    try:
        amount = make_zip(target)
    except OSError as error:
        print(f"spark-zip: cannot write {target}: {error.strerror}", file=sys.stderr)
        return 1
    print(f"{target}: {amount} files; spark-submit --py-files {target} …")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
