#!/bin/sh
# Makes .venv with the project (editable) and all its extras.  Quick when nothing changed.
set -eu
cd "$(dirname "$0")/.."

# The system's own Python first: distributions build theirs with optimizations, and one that was compiled at
# home is often slower by a fifth.  Those that can make a venv come before those that cannot yet.
find_python() {
    for candidate in ${DUCKROW_PYTHON:-/usr/bin/python3.11 python3.11 python3.12 python3.13 python3.14 python3}; do
        if "$candidate" -c "import sys, $1; sys.exit(sys.version_info < (3, 11))" 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
}
python=$(find_python ensurepip,venv)
python=${python:-$(find_python sys)}
if [ -z "$python" ]; then
    echo "setup: Python 3.11 or newer is needed, and there is none${DUCKROW_PYTHON:+ at $DUCKROW_PYTHON}" >&2
    exit 1
fi

# Tests launch clusters over ssh to this machine, at an sshd of their own.
if ! command -v sshd >/dev/null && [ ! -x /usr/sbin/sshd ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "setup: installing openssh-server"
        apt-get update -qq
        # Nothing of it has to run: tests start one of their own.
        RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq openssh-server openssh-client >/dev/null
    else
        echo "setup: please install openssh-server, which the tests of \`duckrow cluster up --hosts\` need" >&2
    fi
fi

# Spark runs on Java.
if ! command -v java >/dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "setup: installing a Java runtime"
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq default-jre-headless >/dev/null
    else
        echo "setup: please install a Java runtime, 17 or newer, which Spark and its tests need" >&2
    fi
fi

# Jobs on Spark fill tables of PostgreSQL: tests start a server of their own.
if ! command -v initdb >/dev/null && ! ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "setup: installing PostgreSQL"
        apt-get update -qq
        # Nothing of it has to run: tests start one of their own.
        RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq postgresql >/dev/null
    else
        echo "setup: please install PostgreSQL's server, which the tests of \`duckrow pipeline metrics\` need" >&2
    fi
fi

# What was installed is named by what it was installed from.
wanted=$("$python" -c 'import sys, zlib, pathlib as p; print(sys.executable, sys.version, p.Path.cwd(), zlib.crc32(p.Path("pyproject.toml").read_bytes()))')
if [ -f .venv/installed ] && [ "$(cat .venv/installed)" = "$wanted" ]; then
    exit 0
fi

if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    # Debian keeps this part of Python in a package of its own.
    package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "setup: installing $package"
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$package" >/dev/null
    else
        echo "setup: please install $package (it holds Python's venv module), then run make setup again" >&2
        exit 1
    fi
fi

echo "setup: making .venv"
"$python" -m venv --clear .venv
.venv/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[archive,connect,parquet,plot,postgres,query,spark,zstd,test]'
printf '%s\n' "$wanted" > .venv/installed
