// y[..., m, n] = sum over k of x[..., m, k] * w[..., n, k], with w in any real or block type.
//
// A group makes some rows of w times some rows of x (tokens): each block of w is decoded once, in
// registers, and used for all of them. With one token decoding is most of the work, and more rows
// share what is read of x; with many, 2 rows of 8 sums fill the registers of AVX-512, which was a
// third faster than 4 of 4. x must have its k side by side and w its blocks; `matmul_any` is for
// whatever else a view can be. Sums are of 16 floats on a processor, and of one a lane on a GPU,
// whose registers 16 would exhaust.

#define MOST_ROWS 4
#define TOKENS 8
#if LANES > 1
#define ROWS_OF_ONE 2
typedef float Sum;
INLINE Sum MultiplyAdd(float16 a, float16 b, Sum sum) { return sum + SumOf16(a * b); }
INLINE float Total(Sum sum) { return sum; }
#else
#define ROWS_OF_ONE 4
typedef float16 Sum;
INLINE Sum MultiplyAdd(float16 a, float16 b, Sum sum) { return fma(a, b, sum); }
INLINE float Total(Sum sum) { return SumOf16(sum); }
#endif
#define ROWS_OF_MANY 2

// Groups of heads share a batch of w; a batch of 1 is shared by all.
INLINE long BatchOfWeights(Tensor w, Tensor y, long batch) {
  const long outer = batch / y.size[1], inner = batch % y.size[1];
  return w.offset + outer / (y.size[0] / w.size[0]) * w.stride[0] +
         inner / (y.size[1] / w.size[1]) * w.stride[1];
}

INLINE void MatmulTile(Source w, Tensor ws, Source x, Tensor xs, Target y, Tensor ys, int type,
                       int tile_rows, int tokens, LOCAL float* shared) {
  const long first_row = GROUP(0) * tile_rows, first_token = GROUP(1) * tokens;
  const long batch = GROUP(2), inner = ws.size[3];
  const long rows = ys.size[3], all_tokens = ys.size[2];
  const long blocks = inner / BLOCK;
  const int block_bytes = BytesOfBlock(type);
  w += BatchOfWeights(ws, ys, batch);
  x += OffsetOf(xs, batch / ys.size[1], batch % ys.size[1], 0);
  y += OffsetOf(ys, batch / ys.size[1], batch % ys.size[1], 0);

  // Past the end the last one is computed again, and not stored.
  Source w_row[MOST_ROWS], x_row[TOKENS];
  for (int r = 0; r < tile_rows; ++r) w_row[r] = w + min(first_row + r, rows - 1) * ws.stride[2];
  for (int t = 0; t < tokens; ++t)
    x_row[t] = x + min(first_token + t, all_tokens - 1) * xs.stride[2];

  Sum sum[MOST_ROWS][TOKENS];
  for (int r = 0; r < tile_rows; ++r)
    for (int t = 0; t < tokens; ++t) sum[r][t] = 0;
  for (long b = LANE; b < blocks; b += LANES) {
    float16 low[MOST_ROWS], high[MOST_ROWS];
#pragma unroll
    for (int r = 0; r < tile_rows; ++r) DecodeBlock(w_row[r] + b * block_bytes, type, &low[r], &high[r]);
#pragma unroll
    for (int t = 0; t < tokens; ++t) {
      GLOBAL const float* p = (GLOBAL const float*)x_row[t] + b * BLOCK;
      const float16 x_low = vload16(0, p), x_high = vload16(1, p);
#pragma unroll
      for (int r = 0; r < tile_rows; ++r)
        sum[r][t] = MultiplyAdd(high[r], x_high, MultiplyAdd(low[r], x_low, sum[r][t]));
    }
  }
  float total[MOST_ROWS][TOKENS];
#pragma unroll
  for (int r = 0; r < tile_rows; ++r)
#pragma unroll
    for (int t = 0; t < tokens; ++t) total[r][t] = Total(sum[r][t]);

  // What is left of a row of a plain type.
  for (long k = blocks * BLOCK + LANE; k < inner; k += LANES)
    for (int r = 0; r < tile_rows; ++r) {
      const float value = LoadReal(w_row[r] + k * SizeOf(type), type);
      for (int t = 0; t < tokens; ++t)
        total[r][t] = fma(value, ((GLOBAL const float*)x_row[t])[k], total[r][t]);
    }

#if LANES > 1
  for (int r = 0; r < tile_rows; ++r)
    for (int t = 0; t < tokens; ++t) shared[LANE * tile_rows * tokens + r * tokens + t] = total[r][t];
  BARRIER();
  for (int i = LANE; i < tile_rows * tokens; i += LANES) {
    const long row = first_row + i / tokens, token = first_token + i % tokens;
    if (row >= rows || token >= all_tokens) continue;
    float all = 0;
    for (int lane = 0; lane < LANES; ++lane) all += shared[lane * tile_rows * tokens + i];
    *(GLOBAL float*)(y + token * ys.stride[2] + row * ys.stride[3]) = all;
  }
#else
  for (int r = 0; r < tile_rows; ++r)
    for (int t = 0; t < tokens; ++t)
      if (first_row + r < rows && first_token + t < all_tokens)
        *(GLOBAL float*)(y + (first_token + t) * ys.stride[2] + (first_row + r) * ys.stride[3]) =
            total[r][t];
#endif
}

#define MATMUL(name, type, tile_rows, tokens)                                       \
  KERNEL void name(Source w, Tensor ws, Source x, Tensor xs, Target y, Tensor ys) { \
    LOCAL float shared[LANES * tile_rows * tokens];                                 \
    MatmulTile(w, ws, x, xs, y, ys, type, tile_rows, tokens, shared);               \
  }
MATMUL(matmul_f32_one, F32, ROWS_OF_ONE, 1)
MATMUL(matmul_f16_one, F16, ROWS_OF_ONE, 1)
MATMUL(matmul_bf16_one, BF16, ROWS_OF_ONE, 1)
MATMUL(matmul_q4_0_one, Q4_0, ROWS_OF_ONE, 1)
MATMUL(matmul_q4_1_one, Q4_1, ROWS_OF_ONE, 1)
MATMUL(matmul_q8_0_one, Q8_0, ROWS_OF_ONE, 1)
MATMUL(matmul_f32, F32, ROWS_OF_MANY, TOKENS)
MATMUL(matmul_f16, F16, ROWS_OF_MANY, TOKENS)
MATMUL(matmul_bf16, BF16, ROWS_OF_MANY, TOKENS)
MATMUL(matmul_q4_0, Q4_0, ROWS_OF_MANY, TOKENS)
MATMUL(matmul_q4_1, Q4_1, ROWS_OF_MANY, TOKENS)
MATMUL(matmul_q8_0, Q8_0, ROWS_OF_MANY, TOKENS)

// One element after another, at any strides. A group makes one row of y.
KERNEL void matmul_any(Source w, Tensor ws, Source x, Tensor xs, Target y, Tensor ys) {
  const long token = GROUP(0), batch = GROUP(1);
  w += BatchOfWeights(ws, ys, batch);
  x += OffsetOf(xs, batch / ys.size[1], batch % ys.size[1], token);
  y += OffsetOf(ys, batch / ys.size[1], batch % ys.size[1], token);
  for (long row = LANE; row < ys.size[3]; row += LANES) {
    Source w_row = w + row * ws.stride[2];
    float sum = 0, lost = 0;  // One long sum: what each addition rounds away is kept.
    for (long k = 0; k < ws.size[3]; ++k) {
      const float term = fma(DecodeElement(w_row, ws.type, ws.stride[3], k),
                             *(GLOBAL const float*)(x + k * xs.stride[3]), -lost);
      const float next = sum + term;
      lost = (next - sum) - term;
      sum = next;
    }
    *(GLOBAL float*)(y + row * ys.stride[3]) = sum;
  }
}
