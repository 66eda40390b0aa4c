// Ops on each element by itself, and copies from one type and layout to another.
//
// A group makes CHUNK elements of a row. In place is fine: an element is read before it is
// written, and nobody else reads it.

#define CHUNK 2048

enum { SILU, SWIGLU, ADD, MULTIPLY, SCALE };

INLINE float16 Silu16(float16 x) { return x / (1 + exp(-x)); }

INLINE float16 Apply16(int op, float16 a, float16 b, float factor, float bias) {
  switch (op) {
    case SILU:
      return Silu16(a);
    case SWIGLU:
      return Silu16(a) * b;
    case ADD:
      return a + b;
    case MULTIPLY:
      return a * b;
    default:
      return fma(a, (float16)(factor), (float16)(bias));
  }
}

// b is a itself for ops of one operand.
KERNEL void elementwise(Source a, Tensor as, Source b, Tensor bs, Target y, Tensor ys, int op,
                        float factor, float bias) {
  const long begin = GROUP(0) * CHUNK, end = min(begin + CHUNK, ys.size[3]);
  a += OffsetOfRow(as, ys, GROUP(1));
  b += OffsetOfRow(bs, ys, GROUP(1));
  y += OffsetOfRow(ys, ys, GROUP(1));
  const bool b_is_one = bs.stride[3] == 0;
  const bool is_packed =
      as.stride[3] == 4 && ys.stride[3] == 4 && (b_is_one || bs.stride[3] == 4);
  const long vectors = is_packed ? (end - begin) / 16 : 0;
  for (long i = LANE; i < vectors; i += LANES) {
    const long at = begin + i * 16;
    const float16 left = vload16(0, (GLOBAL const float*)a + at);
    const float16 right = b_is_one ? (float16)(*(GLOBAL const float*)b)
                                   : vload16(0, (GLOBAL const float*)b + at);
    vstore16(Apply16(op, left, right, factor, bias), 0, (GLOBAL float*)y + at);
  }
  for (long i = begin + vectors * 16 + LANE; i < end; i += LANES) {
    const float left = *(GLOBAL const float*)(a + i * as.stride[3]);
    const float right = *(GLOBAL const float*)(b + i * bs.stride[3]);
    *(GLOBAL float*)(y + i * ys.stride[3]) =
        Apply16(op, (float16)(left), (float16)(right), factor, bias).s0;
  }
}

// The same type, or from one real type to another.
KERNEL void copy(Source x, Tensor xs, Target y, Tensor ys) {
  const long begin = GROUP(0) * CHUNK, end = min(begin + CHUNK, ys.size[3]);
  x += OffsetOfRow(xs, ys, GROUP(1));
  y += OffsetOfRow(ys, ys, GROUP(1));
  const int from = xs.type, to = ys.type, bytes = SizeOf(to);
  if (from != to) {
    for (long i = begin + LANE; i < end; i += LANES)
      StoreReal(y + i * ys.stride[3], to, LoadReal(x + i * xs.stride[3], from));
  } else if (bytes == 2) {
    for (long i = begin + LANE; i < end; i += LANES)
      *(GLOBAL ushort*)(y + i * ys.stride[3]) = *(GLOBAL const ushort*)(x + i * xs.stride[3]);
  } else if (bytes == 4) {
    for (long i = begin + LANE; i < end; i += LANES)
      *(GLOBAL uint*)(y + i * ys.stride[3]) = *(GLOBAL const uint*)(x + i * xs.stride[3]);
  } else {
    for (long i = begin + LANE; i < end; i += LANES)
      *(GLOBAL ulong*)(y + i * ys.stride[3]) = *(GLOBAL const ulong*)(x + i * xs.stride[3]);
  }
}
