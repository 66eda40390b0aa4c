// The number of the largest element of a row, the first of equals. One group for each row.

KERNEL void argmax(Source x, Tensor xs, Target y, Tensor ys) {
  LOCAL float shared[LANES];
  LOCAL int found[LANES];
  const int columns = xs.size[3];
  x += OffsetOfRow(xs, xs, GROUP(0));
  const int vectors = xs.stride[3] == 4 ? columns / 16 : 0;
  float16 most = -INFINITY;
  for (int i = LANE; i < vectors; i += LANES) most = fmax(most, vload16(i, (GLOBAL const float*)x));
  float largest = MaximumOf16(most);
  for (int i = vectors * 16 + LANE; i < columns; i += LANES)
    largest = fmax(largest, *(GLOBAL const float*)(x + i * xs.stride[3]));
  largest = MaximumOfLanes(largest, shared);

  int first = columns;
  for (int i = LANE; i < vectors && first == columns; i += LANES)
    if (any(vload16(i, (GLOBAL const float*)x) == (float16)(largest)))
      for (int j = 15; j >= 0; --j)
        if (((GLOBAL const float*)x)[i * 16 + j] == largest) first = i * 16 + j;
  for (int i = vectors * 16 + LANE; i < columns && first == columns; i += LANES)
    if (*(GLOBAL const float*)(x + i * xs.stride[3]) == largest) first = i;
  found[LANE] = first;
  BARRIER();
  if (LANE != 0) return;
  for (int i = 0; i < LANES; ++i) first = min(first, found[i]);
  // A row of NaNs has no largest.
  *(GLOBAL int*)(y + OffsetOfRow(ys, ys, GROUP(0))) = first == columns ? 0 : first;
}
