// The functions of Simd that work on floats, for the width of vector.h. Included only by the
// simd_*.cc files.
#pragma once

#include "backends/cpu/simd.h"
#include "backends/cpu/vector.h"

namespace tandem::cpu {
namespace {

// ---- Rows -------------------------------------------------------------------------------------

// out[i] = f(x[i]), a vector at a time.
template <class F>
TANDEM_INLINE void Map(const float* x, float* out, int64_t n, const F& f) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) Store(out + i, f(Load(x + i)));
  if (i < n) StoreSome(out + i, f(LoadSome(x + i, n - i, 0)), n - i);
}
template <class F>
TANDEM_INLINE void Map(const float* a, const float* b, float* out, int64_t n, const F& f) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) Store(out + i, f(Load(a + i), Load(b + i)));
  if (i < n) StoreSome(out + i, f(LoadSome(a + i, n - i, 0), LoadSome(b + i, n - i, 0)), n - i);
}

float SumSquares(const float* x, int64_t n) {
  Floats s[4] = {};
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes)
    for (int j = 0; j < 4; ++j) {
      const Floats v = Load(x + i + j * kLanes);
      s[j] += v * v;
    }
  for (; i + kLanes <= n; i += kLanes) {
    const Floats v = Load(x + i);
    s[0] += v * v;
  }
  if (i < n) {
    const Floats v = LoadSome(x + i, n - i, 0);
    s[1] += v * v;
  }
  return Sum((s[0] + s[1]) + (s[2] + s[3]));
}

float Dot(const float* a, const float* b, int64_t n) {
  Floats s[4] = {};
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes)
    for (int j = 0; j < 4; ++j) s[j] += Load(a + i + j * kLanes) * Load(b + i + j * kLanes);
  for (; i + kLanes <= n; i += kLanes) s[0] += Load(a + i) * Load(b + i);
  if (i < n) s[1] += LoadSome(a + i, n - i, 0) * LoadSome(b + i, n - i, 0);
  return Sum((s[0] + s[1]) + (s[2] + s[3]));
}

void ScaleRow(const float* x, float factor, float bias, float* out, int64_t n) {
  Map(x, out, n, [=](Floats v) { return v * factor + bias; });
}
void ScaleWeighted(const float* x, float factor, const float* weight, float* out, int64_t n) {
  Map(x, weight, out, n, [=](Floats v, Floats w) { return v * factor * w; });
}
void AddRows(const float* a, const float* b, float* out, int64_t n) {
  Map(a, b, out, n, [](Floats x, Floats y) { return x + y; });
}
void MulRows(const float* a, const float* b, float* out, int64_t n) {
  Map(a, b, out, n, [](Floats x, Floats y) { return x * y; });
}
// x / (1 + exp(-x)); exp(-x) stays finite, so large negative x give about x * exp(88) ^ -1.
TANDEM_INLINE Floats SiluOf(Floats x) { return x / (1.0f + Exp(-x)); }
void Silu(const float* x, float* out, int64_t n) {
  Map(x, out, n, [](Floats v) { return SiluOf(v); });
}
void Swiglu(const float* gate, const float* up, float* out, int64_t n) {
  Map(gate, up, out, n, [](Floats g, Floats u) { return SiluOf(g) * u; });
}
float LargestOf(const float* x, int64_t n) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  Floats m = Set(kLowest);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) m = Max(Load(x + i), m);
  if (i < n) m = Max(LoadSome(x + i, n - i, kLowest), m);
  return Largest(m);
}
float ExpSum(float* x, int64_t n, float shift) {
  Floats sum = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Floats e = Exp(Load(x + i) - shift);
    Store(x + i, e);
    sum += e;
  }
  if (i < n) {
    const Floats e = Exp(LoadSome(x + i, n - i, -std::numeric_limits<float>::infinity()) - shift);
    StoreSome(x + i, e, n - i);
    Floats counted = {};
    std::memcpy(&counted, &e, static_cast<size_t>(n - i) * 4);
    sum += counted;
  }
  return Sum(sum);
}
void FromHalf(const uint16_t* x, float* out, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) Store(out + i, LoadHalf(x + i));
  for (; i < n; ++i) out[i] = ScalarHalf(x + i);
}
void ToHalf(const float* x, uint16_t* out, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) StoreHalf(out + i, Load(x + i));
  if (i < n) {
    uint16_t rest[kLanes];
    StoreHalf(rest, LoadSome(x + i, n - i, 0));
    std::memcpy(out + i, rest, static_cast<size_t>(n - i) * 2);
  }
}

// ---- Rotary embedding -------------------------------------------------------------------------

// In double, so that large positions keep their angle: x = n * pi/2 + r, then a polynomial in r.
void CosSin(const double* angles, int64_t n, float* cosines, float* sines) {
  constexpr int kWide = kLanes / 2;
  constexpr double kMagic = 6755399441055744.0;  // 1.5 * 2^52.
  for (int64_t i = 0; i < n; i += kWide) {
    Doubles x = {};
    const int64_t count = Smaller<int64_t>(kWide, n - i);
    if (count == kWide)
      x = static_cast<Doubles>(*reinterpret_cast<const LooseDoubles*>(angles + i));
    else
      std::memcpy(&x, angles + i, static_cast<size_t>(count) * 8);
    const Doubles shifted = x * 0.63661977236758134308 + kMagic;
    const Longs quarter = (Longs)shifted;
    const Doubles k = shifted - kMagic;
    Doubles r = x - k * 1.57079632673412561417;
    r = r - k * 6.07710050650619224932e-11;
    const Doubles z = r * r;
    Doubles s = z * (-1.0 / 39916800) + 1.0 / 362880;
    s = s * z - 1.0 / 5040;
    s = s * z + 1.0 / 120;
    s = s * z - 1.0 / 6;
    s = s * z * r + r;
    Doubles c = z * (1.0 / 479001600) - 1.0 / 3628800;
    c = c * z + 1.0 / 40320;
    c = c * z - 1.0 / 720;
    c = c * z + 1.0 / 24;
    c = c * z - 0.5;
    c = c * z + 1.0;
    const Longs odd = (quarter & 1) != 0;
    const Doubles sine = odd ? c : s, cosine = odd ? s : c;
    double sine_of[kWide], cosine_of[kWide];
    int64_t quarters[kWide];
    std::memcpy(sine_of, &sine, sizeof sine);
    std::memcpy(cosine_of, &cosine, sizeof cosine);
    std::memcpy(quarters, &quarter, sizeof quarter);
    for (int64_t j = 0; j < count; ++j) {
      const int64_t q = quarters[j];
      sines[i + j] = static_cast<float>((q & 2) != 0 ? -sine_of[j] : sine_of[j]);
      cosines[i + j] = static_cast<float>(((q + 1) & 2) != 0 ? -cosine_of[j] : cosine_of[j]);
    }
  }
}

void Rotate(const float* x, const float* cosines, const float* sines, int64_t n, bool halves,
            float* out) {
  int64_t i = 0;
  if (halves) {
    for (; i + kLanes <= n; i += kLanes) {
      const Floats a = Load(x + i), b = Load(x + n + i), c = Load(cosines + i), s = Load(sines + i);
      Store(out + i, a * c - b * s);
      Store(out + n + i, b * c + a * s);
    }
    for (; i < n; ++i) {
      const float a = x[i], b = x[n + i];
      out[i] = a * cosines[i] - b * sines[i];
      out[n + i] = b * cosines[i] + a * sines[i];
    }
    return;
  }
  for (; i < n; ++i) {
    const float a = x[2 * i], b = x[2 * i + 1];
    out[2 * i] = a * cosines[i] - b * sines[i];
    out[2 * i + 1] = b * cosines[i] + a * sines[i];
  }
}

// ---- Products in floats -----------------------------------------------------------------------

void Accumulate(const float* panel, int64_t k, const float* x, float* sums) {
  constexpr int kParts = 16 / kLanes;
  Floats s[4][kParts] = {};
  int64_t i = 0;
  for (; i + 4 <= k; i += 4)
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j)
#pragma GCC unroll 4
      for (int p = 0; p < kParts; ++p)
        s[j][p] += Load(panel + (i + j) * 16 + p * kLanes) * x[i + j];
  for (; i < k; ++i)
    for (int p = 0; p < kParts; ++p) s[0][p] += Load(panel + i * 16 + p * kLanes) * x[i];
  for (int p = 0; p < kParts; ++p)
    Store(sums + p * kLanes, Load(sums + p * kLanes) + ((s[0][p] + s[1][p]) + (s[2][p] + s[3][p])));
}

// As many columns as fit the registers with kTokens rows: 24 sums of 32, or 12 of 16.
constexpr int kPassVectors = kLanes == 16 ? 4 : 2;

void Multiply(const float* const* a, const float* panel, int64_t k, float* c, int64_t c_stride,
              int rows, bool add) {
  for (int64_t column = 0; column < kColumns; column += kPassVectors * kLanes) {
    Floats s[kTokens][kPassVectors];
    const float *a0 = a[0], *a1 = a[1], *a2 = a[2], *a3 = a[3], *a4 = a[4], *a5 = a[5];
#pragma GCC unroll 6
    for (int t = 0; t < kTokens; ++t)
#pragma GCC unroll 4
      for (int v = 0; v < kPassVectors; ++v) s[t][v] = Floats{};
    const float* w = panel + column;
    for (int64_t i = 0; i < k; ++i, w += kColumns) {
      Floats wv[kPassVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kPassVectors; ++v) wv[v] = Load(w + v * kLanes);
      const float x[kTokens] = {a0[i], a1[i], a2[i], a3[i], a4[i], a5[i]};
#pragma GCC unroll 6
      for (int t = 0; t < kTokens; ++t)
#pragma GCC unroll 4
        for (int v = 0; v < kPassVectors; ++v) s[t][v] += wv[v] * x[t];
    }
#pragma GCC unroll 6
    for (int t = 0; t < kTokens; ++t) {
      if (t >= rows) break;
      float* out = c + t * c_stride + column;
#pragma GCC unroll 4
      for (int v = 0; v < kPassVectors; ++v)
        Store(out + v * kLanes, add ? Load(out + v * kLanes) + s[t][v] : s[t][v]);
    }
  }
}

// ---- Unpacking tiles into floats --------------------------------------------------------------

constexpr int kParts = 16 / kLanes;

struct SixteenFloats {
  Floats part[kParts];
};
TANDEM_INLINE SixteenFloats Halves16(const std::byte* p) {
  SixteenFloats f;
  for (int i = 0; i < kParts; ++i) f.part[i] = LoadHalf(p + i * kLanes * 2);
  return f;
}
// Bits [shift, shift + width of mask) of 16 dwords, as floats.
TANDEM_INLINE SixteenFloats Field16(const std::byte* p, int shift, int32_t mask) {
  SixteenFloats f;
  for (int i = 0; i < kParts; ++i) {
    Ints v;
    std::memcpy(&v, p + i * kLanes * 4, sizeof v);
    f.part[i] = __builtin_convertvector((v >> shift) & mask, Floats);
  }
  return f;
}

// One block: quant * d + m for its 32 k.
template <bool kNibbles>
TANDEM_INLINE void UnpackBlock(const std::byte* quants, const SixteenFloats& d,
                               const SixteenFloats& m, float* out, int64_t stride) {
  constexpr int kRegisters = kNibbles ? 4 : 8;
  for (int v = 0; v < kRegisters; ++v)
    for (int c = 0; c < 4; ++c) {
      const std::byte* p = quants + v * 64;
      const SixteenFloats low = Field16(p, 8 * c, kNibbles ? 15 : 255);
      float* at = out + (kNibbles ? 8 * v + c : 4 * v + c) * stride;
      for (int i = 0; i < kParts; ++i) Store(at + i * kLanes, low.part[i] * d.part[i] + m.part[i]);
      if constexpr (kNibbles) {
        const SixteenFloats high = Field16(p, 8 * c + 4, 15);
        for (int i = 0; i < kParts; ++i)
          Store(at + 4 * stride + i * kLanes, high.part[i] * d.part[i] + m.part[i]);
      }
    }
}

void Unpack(TileFormat format, const std::byte* tile, int64_t begin, int64_t end, float* out,
            int64_t stride) {
  switch (format) {
    case TileFormat::kF32:
      for (int64_t k = begin; k < end; ++k, out += stride) std::memcpy(out, tile + k * 64, 64);
      return;
    case TileFormat::kF16:
      for (int64_t k = begin; k < end; ++k, out += stride)
        for (int i = 0; i < kParts; ++i)
          Store(out + i * kLanes, LoadHalf(tile + k * 32 + i * kLanes * 2));
      return;
    case TileFormat::kBF16:
      for (int64_t k = begin; k < end; ++k, out += stride) {
        uint16_t bits[16];
        uint32_t wide[16];
        std::memcpy(bits, tile + k * 32, 32);
        for (int i = 0; i < 16; ++i) wide[i] = static_cast<uint32_t>(bits[i]) << 16;
        std::memcpy(out, wide, 64);
      }
      return;
    case TileFormat::kQ4_0:
      for (int64_t b = begin / kBlock; b < end / kBlock; ++b, out += kBlock * stride) {
        const std::byte* pair = tile + b / 2 * kQ40PairBytes;
        const SixteenFloats d = Halves16(pair + 512 + b % 2 * 32);
        SixteenFloats m;
        for (int i = 0; i < kParts; ++i) m.part[i] = d.part[i] * -8.0f;
        UnpackBlock<true>(pair + b % 2 * 256, d, m, out, stride);
      }
      return;
    case TileFormat::kQ4_1:
      for (int64_t b = begin / kBlock; b < end / kBlock; ++b, out += kBlock * stride) {
        const std::byte* block = tile + b * kQ41Bytes;
        UnpackBlock<true>(block, Halves16(block + 256), Halves16(block + 288), out, stride);
      }
      return;
    case TileFormat::kQ8_0:
      for (int64_t b = begin / kBlock; b < end / kBlock; ++b, out += kBlock * stride) {
        const std::byte* pair = tile + b / 2 * kQ80PairBytes;
        const SixteenFloats d = Halves16(pair + 1024 + b % 2 * 32);
        SixteenFloats m;
        for (int i = 0; i < kParts; ++i) m.part[i] = d.part[i] * -128.0f;
        UnpackBlock<false>(pair + b % 2 * 512, d, m, out, stride);
      }
      return;
  }
}

}  // namespace
}  // namespace tandem::cpu
