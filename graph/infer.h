// Shape rules of the built-in ops. Pure; errors name both shapes, and the builder adds op and node.
#pragma once

#include "graph/op.h"

namespace tandem::infer {

Result<OpOutput> Matmul(const InferenceContext& context);
Result<OpOutput> Rows(const InferenceContext& context);
Result<OpOutput> RmsNorm(const InferenceContext& context);
Result<OpOutput> Rope(const InferenceContext& context);
Result<OpOutput> Softmax(const InferenceContext& context);
Result<OpOutput> Attention(const InferenceContext& context);
Result<OpOutput> Like(const InferenceContext& context);        // One F32 input: silu, scale.
Result<OpOutput> SameShapes(const InferenceContext& context);  // Two alike: swiglu.
Result<OpOutput> Broadcast(const InferenceContext& context);   // add, mul.
Result<OpOutput> Copy(const InferenceContext& context);
Result<OpOutput> UpdateRows(const InferenceContext& context);
Result<OpOutput> Argmax(const InferenceContext& context);

}  // namespace tandem::infer
