#!/bin/sh
# Install what the testbed needs on a plain Debian or Ubuntu: packages, a virtual environment, pinned dependencies.
# Called by make; says what it does, and does nothing that is done already.
set -eu
cd "$(dirname "$0")/.."
PACKAGES="mininet openvswitch-switch iproute2 iperf3 ethtool iputils-ping net-tools dataset-fashion-mnist"

say() { printf '%s\n' "setup: $*" >&2; }

missing=""
for package in $PACKAGES; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
done
if ! command -v "$PYTHON" >/dev/null; then missing="$missing python3 python3-venv"
elif ! "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
  say "$PYTHON is older than 3.11; install a newer one and name it: make PYTHON=python3.12 ..."
  exit 2
elif ! "$PYTHON" -c 'import venv, ensurepip' 2>/dev/null; then missing="$missing $(basename "$PYTHON")-venv"
fi
if [ -n "$missing" ]; then
  if [ "$(id -u)" = 0 ]; then as_root=""
  elif command -v sudo >/dev/null; then as_root="sudo"
  else
    say "these packages are missing and neither root nor sudo is at hand; have them installed:$missing"
    exit 2
  fi
  say "installing packages:$missing"
  { $as_root apt-get update -q && $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends $missing; } >&2 || {
    say "apt-get failed; install these packages by hand, then run make again:$missing"
    exit 2
  }
fi

[ -x "$VENV/bin/python" ] || { say "making the virtual environment $VENV"; "$PYTHON" -m venv "$VENV"; }
say "installing pinned dependencies (torch is large: a few minutes the first time)"
"$VENV/bin/python" -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]' >&2
say "done"
