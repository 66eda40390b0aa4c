// What needs a whole row before it can make its first element: RMS norm and softmax. One group
// for each row; the row may be overwritten in place.

// y = x / sqrt(mean(x^2) + epsilon) * weight.
KERNEL void rms_norm(Source x, Tensor xs, Source weight, Tensor ws, Target y, Tensor ys,
                     int has_weight, float epsilon) {
  LOCAL float shared[LANES];
  const long columns = ys.size[3];
  x += OffsetOfRow(xs, ys, GROUP(0));
  y += OffsetOfRow(ys, ys, GROUP(0));
  weight += ws.offset;
  const bool is_packed = xs.stride[3] == 4 && ys.stride[3] == 4 && ws.stride[3] == 4;
  const long vectors = is_packed ? columns / 16 : 0;
  float16 squares = 0;
  for (long i = LANE; i < vectors; i += LANES) {
    const float16 v = vload16(i, (GLOBAL const float*)x);
    squares = fma(v, v, squares);
  }
  float sum = SumOf16(squares);
  for (long i = vectors * 16 + LANE; i < columns; i += LANES) {
    const float v = *(GLOBAL const float*)(x + i * xs.stride[3]);
    sum = fma(v, v, sum);
  }
  sum = SumOfLanes(sum, shared);
  const float factor = 1 / sqrt(sum / columns + epsilon);
  for (long i = LANE; i < vectors; i += LANES) {
    float16 v = factor * vload16(i, (GLOBAL const float*)x);
    if (has_weight) v *= vload16(i, (GLOBAL const float*)weight);
    vstore16(v, i, (GLOBAL float*)y);
  }
  for (long i = vectors * 16 + LANE; i < columns; i += LANES) {
    float v = factor * *(GLOBAL const float*)(x + i * xs.stride[3]);
    if (has_weight) v *= *(GLOBAL const float*)(weight + i * ws.stride[3]);
    *(GLOBAL float*)(y + i * ys.stride[3]) = v;
  }
}

// y = softmax(x * scale + mask); a row in which nothing is left is all zeros.
KERNEL void softmax(Source x, Tensor xs, Source mask, Tensor ms, Target y, Tensor ys, int has_mask,
                    float scale) {
  LOCAL float shared[LANES];
  const long columns = ys.size[3];
  x += OffsetOfRow(xs, ys, GROUP(0));
  y += OffsetOfRow(ys, ys, GROUP(0));
  if (has_mask) mask += OffsetOfRow(ms, ys, GROUP(0));
  // The arguments are kept in y: nothing is rounded that was not before.
  float largest = -INFINITY;
  for (long i = LANE; i < columns; i += LANES) {
    float v = *(GLOBAL const float*)(x + i * xs.stride[3]) * scale;
    if (has_mask) v += *(GLOBAL const float*)(mask + i * ms.stride[3]);
    *(GLOBAL float*)(y + i * ys.stride[3]) = v;
    largest = fmax(largest, v);
  }
  largest = MaximumOfLanes(largest, shared);
  float sum = 0;
  for (long i = LANE; i < columns; i += LANES) {
    GLOBAL float* p = (GLOBAL float*)(y + i * ys.stride[3]);
    const float e = largest == -INFINITY ? 0 : exp(*p - largest);
    *p = e;
    sum += e;
  }
  sum = SumOfLanes(sum, shared);
  for (long i = LANE; i < columns; i += LANES) {
    GLOBAL float* p = (GLOBAL float*)(y + i * ys.stride[3]);
    *p = sum > 0 ? *p / sum : 0;
  }
}
