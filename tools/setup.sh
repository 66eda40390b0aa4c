#!/usr/bin/env bash
# Installs the Debian packages of .ci/packages.txt that are missing, as root or through sudo.
set -euo pipefail
cd "$(dirname "$0")/.."

missing=()
while read -r package; do
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] ||
    missing+=("$package")
done <.ci/packages.txt
if [ ${#missing[@]} = 0 ]; then
  echo "setup: all packages are there" >&2
  exit 0
fi

root=()
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null || { echo "setup: needs root or sudo to install: ${missing[*]}" >&2; exit 1; }
  root=(sudo)
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "setup: installing ${missing[*]}" >&2
apt() { "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q "$@" </dev/null >>"$log" 2>&1; }
if ! { apt update && apt install -y --no-install-recommends "${missing[@]}"; }; then
  cat "$log" >&2
  echo "setup: could not install: ${missing[*]}" >&2
  exit 1
fi
# A running server has looked for libraries already.
bazel shutdown >>"$log" 2>&1 || { cat "$log" >&2; exit 1; }
