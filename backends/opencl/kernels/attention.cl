// y[t, h] = softmax(q[t, h] . k[., g] * scale) * v[., g], with g the group of head h.
//
// A group makes one head of one token. Keys come in chunks: their scores, then what the softmax so
// far must shrink by, then their part of the sum; so any number of keys needs the same memory.

#define KEYS 64  // Of a chunk.

// `of_k`, `of_v`: constants, F32 or F16 with elements side by side; or -1, for any layout.
INLINE void AttendTo(Source q, Tensor qs, Source k, Tensor ks, Source v, Tensor vs,
                     Source positions, Tensor ps, Target y, Tensor ys, int has_positions,
                     float scale, LOCAL float* query, LOCAL float* result, LOCAL float* score,
                     int of_k, int of_v) {
  const long head = GROUP(0), token = GROUP(1);
  const long group = head / (qs.size[2] / ks.size[2]);
  const int width = qs.size[3], value_width = ys.size[3];
  q += OffsetOf(qs, 0, token, head);
  k += OffsetOf(ks, 0, 0, group);
  v += OffsetOf(vs, 0, 0, group);
  y += OffsetOf(ys, 0, token, head);
  long keys = ks.size[1];
  if (has_positions) {
    const int position = *(GLOBAL const int*)(positions + ps.offset + token * ps.stride[3]);
    keys = min(keys, (long)position + 1);
  }
  for (int i = LANE; i < width; i += LANES)
    query[i] = *(GLOBAL const float*)(q + i * qs.stride[3]) * scale;
  for (int i = LANE; i < value_width; i += LANES) result[i] = 0;
  BARRIER();

  float largest = -INFINITY, total = 0;
  for (long begin = 0; begin < keys; begin += KEYS) {
    const int count = (int)min((long)KEYS, keys - begin);
    for (int s = LANE; s < count; s += LANES) {
      Source key = k + (begin + s) * ks.stride[1];
      float sum = 0;
      int i = 0;
      if (of_k >= 0) {
        float16 sums = 0;
        for (; i + 16 <= width; i += 16)
          sums = fma(vload16(0, query + i), LoadReal16(key + i * SizeOf(of_k), of_k), sums);
        sum = SumOf16(sums);
      }
      for (; i < width; ++i) sum = fma(query[i], LoadReal(key + i * ks.stride[3], ks.type), sum);
      score[s] = sum;
    }
    BARRIER();
    float next = largest;
    for (int s = 0; s < count; ++s) next = fmax(next, score[s]);
    BARRIER();
    const float shrink = next == largest ? 1 : exp(largest - next);
    for (int s = LANE; s < count; s += LANES) score[s] = exp(score[s] - next);
    BARRIER();
    total *= shrink;
    for (int s = 0; s < count; ++s) total += score[s];
    largest = next;

    Source values = v + begin * vs.stride[1];
    int done = 0;
    if (of_v >= 0) {
      for (int i = LANE * 16; i + 16 <= value_width; i += LANES * 16) {
        float16 sums = shrink * vload16(0, result + i);
        for (int s = 0; s < count; ++s)
          sums = fma((float16)(score[s]),
                     LoadReal16(values + s * vs.stride[1] + i * SizeOf(of_v), of_v), sums);
        vstore16(sums, 0, result + i);
      }
      done = value_width / 16 * 16;
    }
    for (int i = done + LANE; i < value_width; i += LANES) {
      float sum = shrink * result[i];
      for (int s = 0; s < count; ++s)
        sum = fma(score[s], LoadReal(values + s * vs.stride[1] + i * vs.stride[3], vs.type), sum);
      result[i] = sum;
    }
    BARRIER();
  }
  for (int i = LANE; i < value_width; i += LANES)
    *(GLOBAL float*)(y + i * ys.stride[3]) = total > 0 ? result[i] / total : 0;
}

#define ATTENTION(name, of_k, of_v)                                                             \
  KERNEL void name(Source q, Tensor qs, Source k, Tensor ks, Source v, Tensor vs,               \
                   Source positions, Tensor ps, Target y, Tensor ys, int has_positions,         \
                   float scale, LOCAL float* query, LOCAL float* result) {                      \
    LOCAL float score[KEYS];                                                                    \
    AttendTo(q, qs, k, ks, v, vs, positions, ps, y, ys, has_positions, scale, query, result,    \
             score, of_k, of_v);                                                                \
  }
ATTENTION(attention_f32, F32, F32)
ATTENTION(attention_f16, F16, F16)
ATTENTION(attention_any, -1, -1)
