#!/usr/bin/env bash
# Sets up, fetches the model, and runs every test. The last line is `N passed, N failed, N skipped`,
# by test case; the exit status is 0 if none failed.
#
#   tools/test.sh [--sanitize] [--long]
#
# --sanitize  also runs all tests under the address and undefined-behaviour sanitizers, and those
#             tagged `threads` under the thread sanitizer
# --long      sets TANDEM_LONG=1, for the tests that then run for longer
set -euo pipefail
cd "$(dirname "$0")/.."

sanitize=false
for option in "$@"; do
  case $option in
    --sanitize) sanitize=true ;;
    --long) export TANDEM_LONG=1 ;;
    *) echo "test: unknown option $option" >&2; exit 2 ;;
  esac
done

tools/setup.sh
TANDEM_MODELS=$(tools/fetch_models.sh)
export TANDEM_MODELS
if [ -z "${TANDEM_SHARED_DATA:-}" ] && [ -d ../shared/data ]; then
  TANDEM_SHARED_DATA=$(cd ../shared/data && pwd)
  export TANDEM_SHARED_DATA
fi

events=$(mktemp -d)
trap 'rm -rf "$events"' EXIT
status=0
run() {  # NAME FLAGS...: one pass over the tests.
  local name=$1
  shift
  echo "test: $name" >&2
  bazel test --keep_going --test_env=TANDEM_LONG --test_summary=terse \
    --build_event_json_file="$events/$name.json" "$@" //... </dev/null || status=1
}

run plain
if $sanitize; then
  root=()
  [ "$(id -u)" = 0 ] || root=(sudo)
  "${root[@]}" tools/get_tbb_source.sh
  run address-and-undefined --config=asan --config=ubsan --platform_suffix=-asan-ubsan
  run threads --config=tsan --build_tests_only --test_tag_filters=threads
fi
python3 tools/summarize_tests.py "$events"/*.json || status=1
exit $status
