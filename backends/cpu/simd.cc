#include "backends/cpu/simd.h"

namespace tandem::cpu {

const Simd* FindSimd(std::string_view name) {
  for (const Simd* simd : {Avx512Simd(), Avx2Simd(), PortableSimd()})
    if (simd != nullptr && (name.empty() || simd->name == name)) return simd;
  return nullptr;
}

}  // namespace tandem::cpu
