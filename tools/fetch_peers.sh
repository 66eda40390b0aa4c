#!/usr/bin/env bash
# Builds the peer that `tandem bench --peers` measures against, from its source package and for
# this machine's processor. Minutes; prints the Python interpreter that has it.
set -euo pipefail
package=llama-cpp-python
version=0.3.36

venv=${XDG_CACHE_HOME:-$HOME/.cache}/tandem/peers/venv
built() { "$1/bin/python" -c "import llama_cpp; assert llama_cpp.__version__ == '$version'" 2>/dev/null; }

if built "$venv"; then
  echo "peers: $package $version is there" >&2
else
  echo "peers: building $package $version" >&2
  mkdir -p "$(dirname "$venv")"
  work=$(mktemp -d "$venv.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  # pip works on it from outside, so that Debian's python3-venv is not needed.
  python3 -m venv --without-pip "$work"
  CMAKE_ARGS="-DGGML_NATIVE=ON" CMAKE_BUILD_PARALLEL_LEVEL=$(nproc) \
    python3 -m pip --python "$work/bin/python" install --quiet --no-cache-dir \
    --no-binary "$package" "$package==$version" >&2
  built "$work" || { echo "peers: $package does not load" >&2; exit 1; }
  rm -rf "$venv"
  mv "$work" "$venv"
fi
echo "$venv/bin/python"
