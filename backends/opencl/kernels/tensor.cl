// A tensor as kernels get it, and its elements of plain types.
//
// F16 is converted by its bits: every device can, and the same way on all. A half's exponent and
// fraction, moved to a float's place, are the value times 2^-112; only infinities and NaNs need
// their exponent set.

// The numbers are those of tandem::Type.
enum { F32, F16, BF16, I32, I64, Q4_0, Q4_1, Q8_0 };

// Always of rank 4, outermost first; strides in bytes, 0 where the tensor is broadcast.
typedef struct {
  long offset;  // Of the first element in its buffer, in bytes.
  long size[4];
  long stride[4];
  long type;
} Tensor;

INLINE float HalfToFloat(ushort half_bits) {
  const int bits = ((int)as_short(half_bits) << 13) & (int)0x8fffe000;
  return (bits & 0x0f800000) == 0x0f800000 ? as_float(bits | 0x7f800000)
                                           : as_float(bits) * 0x1p112f;
}

INLINE float16 HalfToFloat16(ushort16 half_bits) {
  const int16 bits = (convert_int16(as_short16(half_bits)) << 13) & (int16)((int)0x8fffe000);
  return select(as_float16(bits) * 0x1p112f, as_float16(bits | (int16)(0x7f800000)),
                (bits & (int16)(0x0f800000)) == (int16)(0x0f800000));
}

INLINE float16 BFloat16ToFloat16(ushort16 bits) {
  return as_float16(convert_uint16(bits) << 16);
}

// To nearest even; a NaN stays one.
INLINE ushort FloatToBFloat16(float value) {
  const uint bits = as_uint(value);
  if (isnan(value)) return (ushort)((bits >> 16) | 0x40);
  return (ushort)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

INLINE int SizeOf(int type) { return type == F32 || type == I32 ? 4 : type == I64 ? 8 : 2; }

INLINE float LoadReal(Source p, int type) {
  if (type == F32) return *(GLOBAL const float*)p;
  const ushort bits = *(GLOBAL const ushort*)p;
  return type == F16 ? HalfToFloat(bits) : as_float((uint)bits << 16);
}

INLINE void StoreReal(Target p, int type, float value) {
  if (type == F32)
    *(GLOBAL float*)p = value;
  else if (type == F16)
    vstore_half_rte(value, 0, (GLOBAL half*)p);
  else
    *(GLOBAL ushort*)p = FloatToBFloat16(value);
}

// 16 elements side by side.
INLINE float16 LoadReal16(Source p, int type) {
  if (type == F32) return vload16(0, (GLOBAL const float*)p);
  const ushort16 bits = vload16(0, (GLOBAL const ushort*)p);
  return type == F16 ? HalfToFloat16(bits) : BFloat16ToFloat16(bits);
}

INLINE long LoadInteger(Source p, int type) {
  return type == I32 ? (long)*(GLOBAL const int*)p : *(GLOBAL const long*)p;
}

INLINE long OffsetOf(Tensor t, long a, long b, long c) {
  return t.offset + a * t.stride[0] + b * t.stride[1] + c * t.stride[2];
}

// The row-major number of a row (a run of the last dimension) to its offset.
INLINE long OffsetOfRow(Tensor t, Tensor shape, long row) {
  const long c = row % shape.size[2], rest = row / shape.size[2];
  return OffsetOf(t, rest / shape.size[1], rest % shape.size[1], c);
}
