#include "graph/ops.h"

#include "graph/infer.h"
#include "graph/reference.h"

namespace tandem::ops {
namespace {

using Layouts = std::span<const Layout>;

double Bytes(Layouts inputs, const Layout& output) {
  double bytes = static_cast<double>(output.PackedBytes());
  for (const Layout& input : inputs)
    if (input.rank > 0) bytes += static_cast<double>(input.PackedBytes());
  return bytes;
}
// Ops that do about `Flops` operations for each element that they make.
template <int Flops>
OpCost PerElement(Layouts inputs, const Layout& output) {
  return {Flops * static_cast<double>(output.Elements()), Bytes(inputs, output)};
}
OpCost MatmulCost(Layouts inputs, const Layout& output) {
  const double width = static_cast<double>(inputs[0].dims[inputs[0].rank - 1]);
  return {2 * width * static_cast<double>(output.Elements()), Bytes(inputs, output)};
}
OpCost AttentionCost(Layouts inputs, const Layout& output) {
  const Layout &q = inputs[0], &k = inputs[1];
  const double pairs = static_cast<double>(q.dims[0]) * q.dims[1] * k.dims[0];
  return {pairs * 2 * static_cast<double>(q.dims[2] + output.dims[2]), Bytes(inputs, output)};
}
// Only the rows that are taken are read, in whatever type the table has.
OpCost RowsCost(Layouts inputs, const Layout& output) {
  const TypeInfo& info = Info(inputs[0].type);
  const double elements = static_cast<double>(output.Elements());
  return {elements, static_cast<double>(output.PackedBytes()) +
                        elements / info.block_elements * info.block_bytes};
}
OpCost UpdateRowsCost(Layouts inputs, const Layout& output) {
  const double elements = static_cast<double>(inputs[1].Elements());
  return {elements,
          static_cast<double>(inputs[1].PackedBytes()) + elements * Info(output.type).block_bytes};
}
OpCost ReadAll(Layouts inputs, const Layout& output) {
  return {static_cast<double>(inputs[0].Elements()), Bytes(inputs, output)};
}

constexpr AttributeSpec kMatmulAttributes[] = {{"exact", 0}};
constexpr AttributeSpec kRmsNormAttributes[] = {{"epsilon", 1e-5}};
constexpr AttributeSpec kRopeAttributes[] = {
    {"dims", 0}, {"base", 10000}, {"scale", 1}, {"halves", 0}};
constexpr AttributeSpec kSoftmaxAttributes[] = {{"scale", 1}};
constexpr AttributeSpec kAttentionAttributes[] = {{"scale", 0}};
constexpr AttributeSpec kScaleAttributes[] = {{"factor", 1}, {"bias", 0}};
constexpr AttributeSpec kCopyAttributes[] = {{"type", -1}};

}  // namespace

constinit const OpDefinition kMatmul = {.name = "matmul",
                                        .required_inputs = 2,
                                        .attributes = kMatmulAttributes,
                                        .infer = infer::Matmul,
                                        .cost = MatmulCost,
                                        .reference = reference::Matmul};
constinit const OpDefinition kRows = {.name = "rows",
                                      .required_inputs = 2,
                                      .attributes = {},
                                      .infer = infer::Rows,
                                      .cost = RowsCost,
                                      .reference = reference::Rows};
constinit const OpDefinition kRmsNorm = {.name = "rms_norm",
                                         .required_inputs = 1,
                                         .optional_inputs = 1,
                                         .attributes = kRmsNormAttributes,
                                         .infer = infer::RmsNorm,
                                         .in_place_input = 0,
                                         .cost = PerElement<4>,
                                         .reference = reference::RmsNorm};
constinit const OpDefinition kRope = {.name = "rope",
                                      .required_inputs = 2,
                                      .optional_inputs = 1,
                                      .attributes = kRopeAttributes,
                                      .infer = infer::Rope,
                                      .in_place_input = 0,
                                      .cost = PerElement<6>,
                                      .reference = reference::Rope};
constinit const OpDefinition kSoftmax = {.name = "softmax",
                                         .required_inputs = 1,
                                         .optional_inputs = 1,
                                         .attributes = kSoftmaxAttributes,
                                         .infer = infer::Softmax,
                                         .in_place_input = 0,
                                         .cost = PerElement<20>,
                                         .reference = reference::Softmax};
constinit const OpDefinition kAttention = {.name = "attention",
                                           .required_inputs = 3,
                                           .optional_inputs = 1,
                                           .attributes = kAttentionAttributes,
                                           .infer = infer::Attention,
                                           .cost = AttentionCost,
                                           .reference = reference::Attention};
constinit const OpDefinition kSilu = {.name = "silu",
                                      .required_inputs = 1,
                                      .attributes = {},
                                      .infer = infer::Like,
                                      .in_place_input = 0,
                                      .cost = PerElement<20>,
                                      .reference = reference::Silu};
constinit const OpDefinition kSwiglu = {.name = "swiglu",
                                        .required_inputs = 2,
                                        .attributes = {},
                                        .infer = infer::SameShapes,
                                        .in_place_input = 0,
                                        .cost = PerElement<22>,
                                        .reference = reference::Swiglu};
constinit const OpDefinition kAdd = {.name = "add",
                                     .required_inputs = 2,
                                     .attributes = {},
                                     .infer = infer::Broadcast,
                                     .in_place_input = 0,
                                     .cost = PerElement<1>,
                                     .reference = reference::Add};
constinit const OpDefinition kMul = {.name = "mul",
                                     .required_inputs = 2,
                                     .attributes = {},
                                     .infer = infer::Broadcast,
                                     .in_place_input = 0,
                                     .cost = PerElement<1>,
                                     .reference = reference::Mul};
constinit const OpDefinition kScale = {.name = "scale",
                                       .required_inputs = 1,
                                       .attributes = kScaleAttributes,
                                       .infer = infer::Like,
                                       .in_place_input = 0,
                                       .cost = PerElement<2>,
                                       .reference = reference::Scale};
constinit const OpDefinition kCopy = {.name = "copy",
                                      .required_inputs = 1,
                                      .attributes = kCopyAttributes,
                                      .infer = infer::Copy,
                                      .cost = PerElement<1>,
                                      .reference = reference::Copy};
constinit const OpDefinition kUpdateRows = {.name = "update_rows",
                                            .required_inputs = 3,
                                            .attributes = {},
                                            .infer = infer::UpdateRows,
                                            .state_input = 0,
                                            .cost = UpdateRowsCost,
                                            .reference = reference::UpdateRows};
constinit const OpDefinition kArgmax = {.name = "argmax",
                                        .required_inputs = 1,
                                        .attributes = {},
                                        .infer = infer::Argmax,
                                        .cost = ReadAll,
                                        .reference = reference::Argmax};

std::span<const OpDefinition* const> All() {
  static constexpr const OpDefinition* kAll[] = {
      &kMatmul, &kRows, &kRmsNorm, &kRope,  &kSoftmax, &kAttention,  &kSilu,
      &kSwiglu, &kAdd,  &kMul,     &kScale, &kCopy,    &kUpdateRows, &kArgmax};
  return kAll;
}

}  // namespace tandem::ops
