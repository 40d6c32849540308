#!/bin/sh
# Make .venv hold what requirements.txt locks: nothing to do, and no network, when it already does.
#
#     sandbox/bootstrap.sh       what `make up` needs
#     sandbox/bootstrap.sh dev   with what tests, linters and locking need
#
# uv does the work, as pip needs minutes for it; uv itself comes by pip with the hash from the same file.
# Both use the package index that pip is configured for, and trust the certificates that the system trusts.
set -eu
cd "$(dirname "$0")/.."

# Of a new .venv; packages that are cached elsewhere come on top.
needed_mb=2000

stop() {
    echo "make: $1" >&2
    exit 1
}

runs() { # a Python of ours that can make an environment; pyenv's shims exist also for versions that do not run
    "$1" -c 'import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' >/dev/null 2>&1
}

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        runs "$PYTHON" || stop "PYTHON=$PYTHON is no Python 3.11 to 3.14 with venv and pip: name another, or leave it out"
        echo "$PYTHON"
        return
    fi
    # A system's own comes first: it is built with profiles, which pyenv does not do, and a tenth faster here.
    for candidate in /usr/bin/python3 /opt/homebrew/bin/python3 python3.12 python3.13 python3.11 python3.14 python3 \
        "${HOME:-/nonexistent}"/.pyenv/versions/3.1[1234].*/bin/python; do
        if runs "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    stop "no Python 3.11 to 3.14 with venv and pip found: install one (Debian: apt install python3 python3-venv; macOS: brew install python), or name it with PYTHON="
}

checksum() {
    { sha256sum requirements.txt 2>/dev/null || shasum -a 256 requirements.txt; } | cut -c1-64
}

lock() { # one set-up at a time: the link's text is its process
    [ -w . ] || stop "cannot write to $(pwd): make it writable, or clone into a folder of yours"
    while ! ln -s "$$" .venv.lock 2>/dev/null; do
        owner=$(readlink .venv.lock || true)
        ! kill -0 "${owner:-0}" 2>/dev/null || stop "another set-up runs in $(pwd) (process $owner): wait until it is done"
        rm -f .venv.lock
    done
    trap 'rm -f .venv.lock' EXIT
    trap 'exit 1' HUP INT TERM
}

require_cache() {
    cache=${UV_CACHE_DIR:-${XDG_CACHE_HOME:-${HOME:-}/.cache}/uv}
    { mkdir -p "$cache" && [ -w "$cache" ]; } 2>/dev/null ||
        stop "cannot write to $cache, where packages are kept: make it writable, or set HOME to a folder of yours"
}

require_space() {
    free_mb=$(df -Pk . | awk 'NR == 2 { print int($4 / 1024) }')
    [ "$free_mb" -ge "$needed_mb" ] ||
        stop "$(pwd): the disk is almost full ($free_mb MB free, $needed_mb needed): free some and run it again"
}

configured() { # what pip is configured to use
    .venv/bin/python -m pip config get "global.$1" 2>/dev/null || true
}

with_progress() { # run a command, and print a line each five seconds until it has ended
    "$@" &
    work=$!
    started=$(date +%s)
    while sleep 1 && kill -0 $work 2>/dev/null; do
        seconds=$(($(date +%s) - started))
        [ $((seconds % 5)) -ne 0 ] || echo "setup: installing packages ($seconds s)"
    done
    wait $work
}

extras="dashboard msk pkcs12 s3 sandbox spark ${1:-}"
sum=$(checksum)
wanted="$sum ${1:-}"
stamp=.venv/.locked
installed=$(cat $stamp 2>/dev/null || true)
if { [ "$installed" = "$wanted" ] || [ "$installed" = "$sum dev" ]; } && .venv/bin/python -c '' 2>/dev/null; then
    exit 0
fi
lock
require_cache
if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    require_space
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
    index=${PIP_INDEX_URL:-$(configured index-url)}
    [ -z "$index" ] || export UV_DEFAULT_INDEX="$index"
fi
export UV_SYSTEM_CERTS="${UV_SYSTEM_CERTS:-1}"
if [ -z "${SSL_CERT_FILE:-}" ]; then
    certificates=${PIP_CERT:-$(configured cert)}
    [ -z "$certificates" ] || export SSL_CERT_FILE="$certificates"
fi
echo "setup: installing what requirements.txt locks (PySpark alone is 450 MB: some minutes the first time)"
# As constraints, the lock gives each package its version and its hashes.
# shellcheck disable=SC2046,SC2086 # Words, not one text.
VIRTUAL_ENV="$(pwd)/.venv" with_progress .venv/bin/uv pip install --quiet --exact -r pyproject.toml -c requirements.txt \
    $(printf ' --extra %s' $extras) ||
    stop "the packages could not all be installed: see the lines above; run it again to go on where it stopped"
# Else each of a dozen processes that start together would compile the same modules. What cannot be compiled
# is for another Python.
.venv/bin/python -m compileall -q -j 0 -x '/(tests|pip|mypy|pygments|setuptools|narwhals|apprise/plugins)/' \
    .venv/lib collectors dashboard fenceline sandbox spark_listener spark_pipeline transaction_admin >/dev/null || true
echo "$wanted" >$stamp
