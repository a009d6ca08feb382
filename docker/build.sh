#!/bin/sh
# Build the images netsense-system, -worker, -testbed and -prometheus on BASE_IMAGE. Called by `make images`.
# No build has a network: wheels are fetched before, by the virtual environment's pip, and packages by a container of the base, which
# knows what it lacks. A tag is a digest of all that goes in, so an image that is there already is not built again.
set -eu
cd "$(dirname "$0")/.."
. docker/engine.sh
BASE_IMAGE="${BASE_IMAGE:-python:3.11-slim-bookworm}"
BUILD="${BUILD:-$PWD/docker/.build}"
VENV="${VENV:-.venv}"
PYTHON="$VENV/bin/python"
TESTBED_PACKAGES="mininet openvswitch-switch iproute2 iperf3 ethtool iputils-ping net-tools dataset-fashion-mnist"

require_base() {
  docker image inspect "$BASE_IMAGE" >/dev/null 2>&1 || docker pull -q "$BASE_IMAGE" >/dev/null 2>&1 || refuse \
    "$BASE_IMAGE is not here and cannot be pulled: make base-image makes a base locally, then make images BASE_IMAGE=netsense-base"
  found="$(docker run --rm --network none --entrypoint python3 "$BASE_IMAGE" -c 'import sys; print("%d.%d" % sys.version_info[:2])')" ||
    refuse "$BASE_IMAGE has no python3: make images BASE_IMAGE=python:$python-slim-bookworm, or BASE_IMAGE=netsense-base"
  [ "$found" = "$python" ] || refuse \
    "the wheels are for the Python of $VENV, $python, and $BASE_IMAGE has $found: make images BASE_IMAGE=python:$python-slim-bookworm"
}

# fetch_wheels FOLDER WHAT...: fetch wheels and those they need, once, until the pins change.
fetch_wheels() {
  folder="$BUILD/$1"
  shift
  wanted="$python $* $(cat constraints.txt)"
  [ "$(cat "$folder.done" 2>/dev/null)" != "$wanted" ] || return 0
  say "fetching wheels into $folder"
  rm -rf "$folder" && mkdir -p "$folder"
  "$PYTHON" -m pip wheel -q --disable-pip-version-check -c constraints.txt -w "$folder" "$@" >&2 ||
    refuse "pip cannot get the wheels; what it said is above"
  printf %s "$wanted" >"$folder.done"
}

# fetch_debs FOLDER PACKAGE...: fetch what the base lacks of packages and of what they need, once for a base.
fetch_debs() {
  folder="$BUILD/$1"
  shift
  wanted="$base $*"
  [ "$(cat "$folder.done" 2>/dev/null)" != "$wanted" ] || return 0
  say "fetching packages into $folder"
  rm -rf "$folder" && mkdir -p "$folder"
  docker run --rm --network host --user 0 -e http_proxy -e https_proxy -v "$folder:/debs" --entrypoint sh "$BASE_IMAGE" -c '
    apt-get update -q && apt-get install -qy --no-install-recommends --download-only -o Dir::Cache::Archives=/debs "$@" &&
    rm -rf /debs/partial /debs/lock && chown -R "$(stat -c %u:%g /debs)" /debs' sh "$@" >"$folder.log" 2>&1 || {
    tail -5 "$folder.log" >&2
    refuse "a container of $BASE_IMAGE cannot fetch $*: is a mirror of its distribution in reach? See $folder.log"
  }
  printf %s "$wanted" >"$folder.done"
}

# build NAME FROM FETCHED SOURCE...: build from docker/NAME, what was fetched and folders of ours. What was fetched counts by its file
# names, which have versions: a wheel that is built here has other bytes each time.
build() {
  name="$1" from="$2" fetched="$3"
  shift 3
  set -- "$@" -C "$PWD/docker/$name" . -C "$PWD/docker" gather.sh slim.py
  tag="netsense-$name:$({ echo "$from"; for folder in $fetched; do ls "$BUILD/$folder"; done; pack "$@"; } | sha256sum | cut -c1-12)"
  if ! docker image inspect "$tag" >/dev/null 2>&1; then
    say "building $tag"
    for folder in $fetched; do set -- "$@" -C "$BUILD/$(dirname "$folder")" "$(basename "$folder")"; done
    pack "$@" | docker build --network none -t "$tag" \
      --build-arg "BASE_IMAGE=$BASE_IMAGE" --build-arg "SYSTEM_IMAGE=$system" --build-arg "WORKER_IMAGE=$worker" \
      --label "netsense-testbed.python=$python" --label "netsense-testbed.source=$source" - >"$BUILD/$name.log" 2>&1 || {
      tail -20 "$BUILD/$name.log" >&2
      refuse "netsense-$name cannot be built, see $BUILD/$name.log"
    }
  fi
  docker tag "$tag" "netsense-$name:latest"
  say "netsense-$name:latest is $tag, $(docker image inspect -f '{{.Size}}' "$tag" | sed 's/......$//') MB"
}

pack() { tar -c --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=go=rX --exclude=__pycache__ "$@"; }

require_engine
mkdir -p "$BUILD"
[ -x "$PYTHON" ] || refuse "there is no virtual environment yet, whose pip fetches the wheels: make setup"
set -- $("$PYTHON" -m testbed.containers.identity)
python="$1" source="$2" system="" worker=""
require_base
base="$(docker image inspect -f '{{json .RootFS.Layers}}' "$BASE_IMAGE")" # not its identity, which has the time of its making in it

build system "$base" ""
system="$tag"

fetch_wheels pip pip
fetch_wheels worker/wheels torch numpy numba
fetch_debs worker/debs iperf3
fetch_debs worker/tools binutils
build worker "$system" "pip worker/wheels worker/debs worker/tools" controller workloads
worker="$tag"

fetch_wheels testbed/wheels $("$PYTHON" -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"])')
ls "$BUILD/worker/wheels" | (cd "$BUILD/testbed/wheels" && xargs rm -f) # the worker's image has those
fetch_debs testbed/debs $TESTBED_PACKAGES
build testbed "$worker" "pip testbed/wheels testbed/debs" analysis experiments testbed topologies

fetch_debs prometheus/debs prometheus
build prometheus "$system" prometheus/debs
