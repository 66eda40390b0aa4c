#!/bin/sh
# Makes C++ of the kernels: embed.sh FILE... > source.cc. One raw string a file, as compilers limit
# the length of a literal.
set -eu
echo '#include <string>'
echo '#include "backends/opencl/program.h"'
echo 'namespace tandem::opencl {'
echo 'std::string_view KernelSource() {'
echo '  static const std::string source = std::string()'
for file in "$@"; do
  printf '  + R"__kernel__('
  cat "$file"
  echo ')__kernel__"'
done
echo '  ;'
echo '  return source;'
echo '}'
echo '}  // namespace tandem::opencl'
