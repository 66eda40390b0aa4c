// Elements of any real or block type of a row, decoded in registers.

#define BLOCK 32  // Elements. Of plain types, just as many side by side.

INLINE int BytesOfBlock(int type) {
  return type == Q4_0 ? 18 : type == Q4_1 ? 20 : type == Q8_0 ? 34 : BLOCK * SizeOf(type);
}

// `type` is a constant where it matters, so that one case remains.
INLINE void DecodeBlock(Source p, int type, float16* low, float16* high) {
  if (type == Q4_0 || type == Q4_1) {
    float scale, offset;
    Source codes;
    if (type == Q4_1) {
      scale = HalfToFloat(((GLOBAL const ushort*)p)[0]);
      offset = HalfToFloat(((GLOBAL const ushort*)p)[1]);
      codes = p + 4;
    } else {
      scale = HalfToFloat(*(GLOBAL const ushort*)p);
      offset = -8 * scale;
      codes = p + 2;
    }
    const uchar16 pairs = vload16(0, codes);
    *low = fma((float16)(scale), convert_float16(pairs & (uchar16)(15)), (float16)(offset));
    *high = fma((float16)(scale), convert_float16(pairs >> (uchar16)(4)), (float16)(offset));
  } else if (type == Q8_0) {
    const float scale = HalfToFloat(*(GLOBAL const ushort*)p);
    GLOBAL const char* codes = (GLOBAL const char*)(p + 2);
    *low = scale * convert_float16(vload16(0, codes));
    *high = scale * convert_float16(vload16(1, codes));
  } else {
    *low = LoadReal16(p, type);
    *high = LoadReal16(p + BLOCK / 2 * SizeOf(type), type);
  }
}

// Element `k` of a row whose last stride (of an element or a block) is `stride`.
INLINE float DecodeElement(Source row, int type, long stride, long k) {
  if (type < Q4_0) return LoadReal(row + k * stride, type);
  Source block = row + k / BLOCK * stride;
  const int i = k % BLOCK;
  const float scale = HalfToFloat(*(GLOBAL const ushort*)block);
  if (type == Q8_0) return scale * ((GLOBAL const char*)block)[2 + i];
  const uchar pair = block[(type == Q4_1 ? 4 : 2) + i % 16];
  const float code = i < 16 ? pair & 15 : pair >> 4;
  return type == Q4_1 ? fma(scale, code, HalfToFloat(*(GLOBAL const ushort*)(block + 2)))
                      : scale * (code - 8);
}
