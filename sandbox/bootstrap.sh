#!/bin/sh
# Make .venv hold exactly what requirements.txt locks: nothing to do when it already does.
#
# uv does the work, as pip needs minutes for it; uv itself comes by pip with the hash from the same file.
# Both use the package index that pip is configured for.
set -eu
cd "$(dirname "$0")/.."

stop() {
    echo "make: $1" >&2
    exit 1
}

runs() { # a Python of ours that can make an environment; pyenv's shims exist also for versions that do not run
    "$1" -c 'import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' >/dev/null 2>&1
}

find_python() {
    for candidate in ${PYTHON:-} python3.12 python3.11 python3 /usr/bin/python3.12 /usr/bin/python3.11 \
        /usr/bin/python3 "${HOME:-/nonexistent}"/.pyenv/versions/3.1[12].*/bin/python; do
        if runs "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    stop "no Python 3.11 or 3.12 with venv and pip found: install one (Debian: apt install python3 python3-venv), or name it with PYTHON="
}

wanted=$(sha256sum requirements.txt | cut -c1-64)
stamp=.venv/.locked
if .venv/bin/python -c '' 2>/dev/null; then
    [ "$(cat $stamp 2>/dev/null)" != "$wanted" ] || exit 0
else
    python=$(find_python)
    echo "setup: making .venv with $("$python" --version)"
    "$python" -m venv --clear .venv || stop "cannot make .venv in $(pwd): see the line above"
fi

version=$(sed -n 's/^uv==\([^ ]*\).*/\1/p' requirements.txt)
if [ "$(.venv/bin/uv --version 2>/dev/null | cut -d' ' -f2)" != "$version" ]; then
    echo "setup: fetching uv $version"
    sed -n '/^uv==/,/[^\\]$/p' requirements.txt >.venv/uv.txt
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r .venv/uv.txt ||
        stop "cannot install uv: check the network and the package index, then run it again"
fi

if [ -z "${UV_DEFAULT_INDEX:-}${UV_INDEX_URL:-}" ]; then
    index=${PIP_INDEX_URL:-$(.venv/bin/python -m pip config get global.index-url 2>/dev/null || true)}
    [ -z "$index" ] || export UV_DEFAULT_INDEX="$index"
fi
echo "setup: installing what requirements.txt locks (PySpark alone is 450 MB: some minutes the first time)"
VIRTUAL_ENV="$(pwd)/.venv" .venv/bin/uv pip sync --require-hashes requirements.txt ||
    stop "the packages could not all be installed: see the lines above; run it again to go on where it stopped"
echo "$wanted" >$stamp
