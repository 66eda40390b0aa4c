// Rotates pairs of elements by angles that grow with the token's position.
//
// An angle of thousands of turns has no digits left in a float, so the host gives the turns each
// position makes as two floats (turns + rest), and the whole turns are dropped before anything is
// rounded.

#define PAIRS 48  // Of a launch: what fits the parameters of a kernel on any device.

typedef struct {
  float turns[PAIRS];
  float rest[PAIRS];
} Turns;

// One group for each token. Rotates the pairs from `first` on, `count` of them, of `pairs` in all,
// and copies the elements from `copy_from` on.
KERNEL void rope(Source x, Tensor xs, Source positions, Tensor ps, Source factors, Tensor fs,
                 Target y, Tensor ys, int has_factors, int halves, int first, int count, int pairs,
                 int copy_from, Turns table) {
  const long token = GROUP(0);
  x += OffsetOf(xs, 0, token, 0);
  y += OffsetOf(ys, 0, token, 0);
  const float position = *(GLOBAL const int*)(positions + ps.offset + token * ps.stride[3]);
  for (int i = LANE; i < count; i += LANES) {
    float turns = table.turns[i], rest = table.rest[i];
    if (has_factors) {
      const float factor =
          *(GLOBAL const float*)(factors + fs.offset + (first + i) * fs.stride[3]);
      const float quotient = turns / factor;
      rest = (fma(-quotient, factor, turns) + rest) / factor;
      turns = quotient;
    }
    const float product = position * turns;
    const float lost = fma(position, turns, -product);
    const float part = (product - rint(product)) + fma(position, rest, lost);
    const float angle = 6.283185307179586f * (part - rint(part));
    const float c = cos(angle), s = sin(angle);
    const int a = halves ? first + i : 2 * (first + i), b = halves ? a + pairs : a + 1;
    for (long head = 0; head < ys.size[2]; ++head) {
      Source from = x + head * xs.stride[2];
      Target to = y + head * ys.stride[2];
      const float u = *(GLOBAL const float*)(from + a * xs.stride[3]);
      const float v = *(GLOBAL const float*)(from + b * xs.stride[3]);
      *(GLOBAL float*)(to + a * ys.stride[3]) = fma(u, c, -(v * s));
      *(GLOBAL float*)(to + b * ys.stride[3]) = fma(u, s, v * c);
    }
  }
  for (long head = 0; head < ys.size[2]; ++head)
    for (long i = copy_from + LANE; i < ys.size[3]; i += LANES)
      *(GLOBAL float*)(y + head * ys.stride[2] + i * ys.stride[3]) =
          *(GLOBAL const float*)(x + head * xs.stride[2] + i * xs.stride[3]);
}
