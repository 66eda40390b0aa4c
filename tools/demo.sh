#!/usr/bin/env bash
# From a bare Debian 12 to a model that runs half on the CPU and half on an OpenCL device: its
# text as it comes, then the table of splits. As root or with sudo.
set -euo pipefail
cd "$(dirname "$0")/.."

tools/setup.sh
echo "demo: building" >&2
bazel build //tools:tandem
model=$(tools/fetch_models.sh)/SmolLM2-135M-Instruct.Q4_1.gguf
tandem=$(bazel info bazel-bin 2>/dev/null)/tools/tandem

split=(-ngl 15 --device opencl:0)
"$tandem" run "$model" -p "The reason why the sky is blue is" -n 64 "${split[@]}"
echo
"$tandem" dump "$model" "${split[@]}" --splits
