// Reference kernels of the built-in ops: what the ops mean, in double. See OpDefinition.
#pragma once

#include "graph/op.h"

namespace tandem::reference {

using Inputs = std::span<const HostTensor>;
using Attributes = std::span<const double>;

Result<void> Matmul(Inputs inputs, const HostTensor& output, Attributes attributes);
Result<void> Rows(Inputs inputs, const HostTensor& output, Attributes attributes);
Result<void> RmsNorm(Inputs inputs, const HostTensor& output, Attributes attributes);
Result<void> Rope(Inputs inputs, const HostTensor& output, Attributes attributes);
Result<void> Softmax(Inputs inputs, const HostTensor& output, Attributes attributes);
Result<void> Attention(Inputs inputs, const HostTensor& output, Attributes attributes);
Result<void> Silu(Inputs inputs, const HostTensor& output, Attributes attributes);
Result<void> Swiglu(Inputs inputs, const HostTensor& output, Attributes attributes);
Result<void> Add(Inputs inputs, const HostTensor& output, Attributes attributes);
Result<void> Mul(Inputs inputs, const HostTensor& output, Attributes attributes);
Result<void> Scale(Inputs inputs, const HostTensor& output, Attributes attributes);
Result<void> Copy(Inputs inputs, const HostTensor& output, Attributes attributes);
Result<void> UpdateRows(Inputs inputs, const HostTensor& output, Attributes attributes);
Result<void> Argmax(Inputs inputs, const HostTensor& output, Attributes attributes);

}  // namespace tandem::reference
