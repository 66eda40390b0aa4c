// How far a device's result may be from the reference, for each element, and why.
//
// u is half the distance of two floats, 2^-24. Each bound follows from how a careful kernel in f32
// computes, with a factor of 2 to 4 to spare; it scales with the terms that are added up and not
// with their sum, so that cancellation is no excuse to make a bound on the whole tensor loose.
//
//   op                     bound on |got - want|
//   matmul, exact          u (8 + 2 sqrt K) sum |x w|; of a block type, |w| is three times the
//                          largest of its block, because scale and minimum may be applied to sums
//   matmul, not exact      and 6 standard deviations of rounding x to 8 bits with one scale for 32
//                          elements (at most its worst case), for block weights; for others, of
//                          rounding both to bfloat16 or to 16-bit integers scaled by their rows
//   rows                   0; of a block type, 3 u of the largest of its block
//   copy, update_rows      0: one rounding, to nearest even
//   add, mul               2 u |want|
//   scale                  4 u (|x factor| + |bias|)
//   rms_norm               32 u |want|
//   silu, swiglu           u (32 + |x|) |want|: exp of a rounded argument; and 1e-37 |x| (|x up|),
//                          where the sigmoid underflows
//   softmax                u (32 + 4 largest |x scale + mask|) want
//   rope                   u (16 + 4 |angle|) (|x0| + |x1|): the angle itself is rounded
//   attention              (2 e + 32 u + u sqrt S) sum p |v|, e = u (8 + 2 sqrt D) scale sum |q k|
//   of
//                          the worst key; where keys or values are F16, q and p may be too
//   argmax                 0
//   others                 4 u |want|
//
// Everywhere 1e-37 more: floats that small may be flushed to zero.
#pragma once

#include <span>
#include <vector>

#include "tests/conformance/case.h"

namespace tandem::conformance {

// One for each element of `want`, row-major.
std::vector<double> Bounds(const Case& c, std::span<const HostTensor> inputs,
                           const HostTensor& want);

}  // namespace tandem::conformance
