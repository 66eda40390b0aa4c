// The built-in ops: what dense llama models need.
//
// Activations are F32 unless noted. T is a number of tokens, any symbol. Shapes are outermost
// first. Broadcasting follows NumPy: the second operand's dimensions are aligned at the end,
// and each is equal to the first's or 1.
//
//   op           inputs                                  output
//   matmul       x[...,M,K] F32, w[...,N,K] any real/block
//                                                        [...,M,N] F32: x * w^T. Batch
//                                                        dimensions of w broadcast, or divide
//                                                        those of x (groups)
//   rows         table[V,K] any real/block, ids[T...] I32/I64
//                                                        [T...,K] F32
//   rms_norm     x[...,K], weight[K] (optional)          like x: x/sqrt(mean(x^2)+epsilon)*weight
//   rope         x[T,H,D], positions[T] I32,             like x; rotates the first R of D
//                factors[R/2] (optional)
//   softmax      x[...,T,S], mask[T,S] F32 (optional,    like x: softmax(x*scale + mask); a row
//                added)                                  that is all hidden becomes zeros
//   attention    q[T,H,D], k[S,G,D], v[S,G,E] F32/F16,   [T,H,E] F32; head h uses group h/(H/G);
//                positions[T] I32 (optional)             with positions, key s is seen by token t
//                                                        iff s <= positions[t]
//   silu         x                                       like x: x*sigmoid(x)
//   swiglu       gate, up                                like gate: silu(gate)*up
//   add, mul     a, b (b broadcasts)                     like a
//   scale        x                                       like x: x*factor + bias
//   copy         x, any strides and real type            contiguous, of type `type`
//   update_rows  state[R,...], rows[T,...] F32/F16/...,  next version of the state: row ids[t] is
//                ids[T] I32/I64                          rows[t], converted
//   argmax       x[...,K]                                [...] I32; first of equals
//
// Ids out of range are errors when running (see op.h).
#pragma once

#include "graph/op.h"

namespace tandem::ops {

extern const OpDefinition kMatmul, kRows, kRmsNorm, kRope, kSoftmax, kAttention, kSilu, kSwiglu,
    kAdd, kMul, kScale, kCopy, kUpdateRows, kArgmax;

// All of the above, for suites and listings.
std::span<const OpDefinition* const> All();

// Attribute indices. Numbers are doubles; flags are 0 or 1; types are the Type's number.
enum MatmulAttribute { kMatmulExact };  // 1: activations stay F32; 0: may be quantised to 8 bits.
enum RmsNormAttribute { kRmsNormEpsilon };
enum RopeAttribute {
  kRopeDims,    // R, even; 0 for all of D.
  kRopeBase,    // theta.
  kRopeScale,   // Multiplies positions (linear scaling: 1/factor).
  kRopeHalves,  // 0: pairs (2i, 2i+1); 1: pairs (i, i+R/2).
};
enum SoftmaxAttribute { kSoftmaxScale };
enum AttentionAttribute { kAttentionScale };  // 0: 1/sqrt(D).
enum ScaleAttribute { kScaleFactor, kScaleBias };
enum CopyAttribute { kCopyType };  // -1: keep.

}  // namespace tandem::ops
