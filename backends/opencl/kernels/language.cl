// What differs between OpenCL C and its relatives, in one place: address spaces, places in the
// grid, barriers. The other files use nothing else of the language but vectors of 16 and the
// mathematical functions.
//
// A group owns a tile of the output. Its LANES work-items share the tile's loops: lane i takes
// the pieces i, i + LANES, ... On a processor with vector units LANES is 1 and the vectors of 16
// do the work; a GPU has as many lanes as its threads run in step.

// Sums that are told to be exact must not be contracted behind their back; fma() is written out.
#pragma OPENCL FP_CONTRACT OFF

#define KERNEL __kernel __attribute__((reqd_work_group_size(LANES, 1, 1)))
#define INLINE static inline __attribute__((always_inline))
#define GLOBAL __global
#define LOCAL __local
#define GROUP(dimension) ((long)get_group_id(dimension))
#if LANES > 1
#define LANE ((int)get_local_id(0))
#define BARRIER() barrier(CLK_LOCAL_MEM_FENCE)
#else
#define LANE 0
#define BARRIER()
#endif

typedef GLOBAL const uchar* Source;
typedef GLOBAL uchar* Target;

// Each lane's value in `shared` (LANES floats), combined in every lane in the same order.
INLINE float SumOfLanes(float value, LOCAL float* shared) {
#if LANES > 1
  shared[LANE] = value;
  BARRIER();
  value = 0;
  for (int i = 0; i < LANES; ++i) value += shared[i];
  BARRIER();
#endif
  return value;
}

INLINE float MaximumOfLanes(float value, LOCAL float* shared) {
#if LANES > 1
  shared[LANE] = value;
  BARRIER();
  for (int i = 0; i < LANES; ++i) value = fmax(value, shared[i]);
  BARRIER();
#endif
  return value;
}

INLINE float SumOf16(float16 v) {
  const float8 a = v.lo + v.hi;
  const float4 b = a.lo + a.hi;
  const float2 c = b.lo + b.hi;
  return c.x + c.y;
}

INLINE float MaximumOf16(float16 v) {
  const float8 a = fmax(v.lo, v.hi);
  const float4 b = fmax(a.lo, a.hi);
  const float2 c = fmax(b.lo, b.hi);
  return fmax(c.x, c.y);
}
