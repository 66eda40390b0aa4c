#include "tests/conformance/runner.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace tandem::conformance {
namespace {

constexpr std::byte kGuard{0xC3};
constexpr std::byte kPoison{0xFF};
constexpr int64_t kGuardBytes = 256;

// "[2,0,7]" of a row-major index.
std::string IndexName(const Layout& layout, int64_t index) {
  std::vector<int64_t> indices(static_cast<size_t>(layout.rank));
  for (int i = layout.rank - 1; i >= 0; --i) {
    indices[i] = index % layout.dims[i];
    index /= layout.dims[i];
  }
  return fmt::format("[{}]", fmt::join(indices, ","));
}

Outcome Compare(const Prepared& prepared, const std::vector<double>& got,
                const std::vector<double>& want) {
  Outcome outcome;
  int64_t wrong = 0, first = -1;
  for (size_t i = 0; i < want.size(); ++i) {
    const bool is_same = got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i]));
    if (is_same) continue;
    const double error = std::fabs(got[i] - want[i]);
    // Not a number compares false: that is an error too.
    if (error <= prepared.bound[i]) {
      outcome.worst = std::max(outcome.worst, error / prepared.bound[i]);
      continue;
    }
    if (first < 0) first = static_cast<int64_t>(i);
    ++wrong;
  }
  if (wrong == 0) return outcome;
  outcome.verdict = Verdict::kFailed;
  outcome.message = fmt::format(
      "{} of {} elements are wrong; the first is {}: {:.9g} instead of {:.9g}, off by {:.3g} where "
      "{:.3g} is allowed",
      wrong, want.size(), IndexName(prepared.want.layout, first), got[first], want[first],
      std::fabs(got[first] - want[first]), prepared.bound[first]);
  return outcome;
}

}  // namespace

struct Runner::Range {
  std::unique_ptr<Buffer> buffer;
  int64_t offset = 0;  // Past the guard.
  int64_t bytes = 0;
};

Question::Question(const Case& c, const Prepared& prepared)
    : present(std::make_unique<bool[]>(c.inputs.size())),
      constant(std::make_unique<bool[]>(c.inputs.size())) {
  const size_t n = c.inputs.size();
  for (size_t i = 0; i < n; ++i) {
    present[i] = c.inputs[i].present;
    constant[i] = c.inputs[i].constant;
  }
  query = {.op = c.op,
           .attributes = c.attributes,
           .inputs = prepared.query_inputs,
           .present = {present.get(), n},
           .constant = {constant.get(), n},
           .output = prepared.query_output};
}

Result<std::unique_ptr<Runner>> Runner::Create(Device& device, Memory& host) {
  TANDEM_ASSIGN(auto stream, device.CreateStream());
  return std::unique_ptr<Runner>(new Runner(device, host, std::move(stream)));
}

Result<Runner::Range> Runner::Upload(std::span<const std::byte> bytes) {
  // An odd multiple of the alignment, so that no kernel gets more than was promised.
  const int64_t alignment = device_.memory().properties().alignment;
  Range range;
  range.offset = ((kGuardBytes / alignment) | 1) * alignment;
  range.bytes = static_cast<int64_t>(bytes.size());
  const int64_t total = range.offset + range.bytes + kGuardBytes;
  TANDEM_ASSIGN(range.buffer, device_.memory().Allocate(total));
  TANDEM_ASSIGN(auto staging, host_.Allocate(total));
  std::fill_n(staging->host(), total, kGuard);
  std::copy(bytes.begin(), bytes.end(), staging->host() + range.offset);
  TANDEM_CHECK(
      stream_->Copy({.source = staging.get(), .target = range.buffer.get(), .row_bytes = total}));
  TANDEM_CHECK(stream_->Synchronize(stream_->Record()));
  return range;
}

Result<std::vector<std::byte>> Runner::Download(Range& range, std::string_view what) {
  const int64_t total = range.buffer->bytes();
  TANDEM_ASSIGN(auto staging, host_.Allocate(total));
  TANDEM_CHECK(
      stream_->Copy({.source = range.buffer.get(), .target = staging.get(), .row_bytes = total}));
  TANDEM_CHECK(stream_->Synchronize(stream_->Record()));
  const std::byte* data = staging->host();
  for (int64_t i = 0; i < total; ++i) {
    const bool is_guard = i < range.offset || i >= range.offset + range.bytes;
    if (is_guard && data[i] != kGuard)
      return Fail(ErrorCode::kInternal, "byte {} of {} ({} bytes) was written", i - range.offset,
                  what, range.bytes);
  }
  return std::vector<std::byte>(data + range.offset, data + range.offset + range.bytes);
}

Result<Outcome> Runner::Try(const Case& c, Prepared& prepared, const KernelChoice& choice) {
  const size_t n = c.inputs.size();
  if (choice.weights.size() != n)
    return Fail(ErrorCode::kInternal, "FindKernel gave {} weight layouts for {} inputs",
                choice.weights.size(), n);
  std::vector<Range> ranges(n);
  std::vector<std::vector<std::byte>> given(n);
  std::vector<TensorArg> arguments(n);
  for (size_t i = 0; i < n; ++i) {
    Arranged& input = prepared.inputs[i];
    arguments[i].layout = input.layout;
    if (!c.inputs[i].present) continue;
    const WeightLayout& wanted = choice.weights[i];
    given[i] = input.bytes;
    if (!wanted.name.empty()) {
      if (!c.inputs[i].constant)
        return Fail(ErrorCode::kInternal, "input {} is computed, but wanted in layout {}", i,
                    wanted.name);
      std::vector<std::byte> packed(static_cast<size_t>(wanted.bytes + 2 * kGuardBytes), kGuard);
      TANDEM_CHECK(device_.Pack(wanted, input.layout.type, c.inputs[i].dims, input.bytes.data(),
                                packed.data() + kGuardBytes));
      const auto is_guard = [](std::byte b) { return b == kGuard; };
      if (!std::all_of(packed.begin(), packed.begin() + kGuardBytes, is_guard) ||
          !std::all_of(packed.end() - kGuardBytes, packed.end(), is_guard))
        return Fail(ErrorCode::kInternal, "Pack wrote outside of the {} bytes of layout {}",
                    wanted.bytes, wanted.name);
      given[i].assign(packed.begin() + kGuardBytes, packed.end() - kGuardBytes);
      arguments[i].packed = &wanted;
    }
    TANDEM_ASSIGN(ranges[i], Upload(given[i]));
    arguments[i].buffer = ranges[i].buffer.get();
    arguments[i].offset = ranges[i].offset + (wanted.name.empty() ? input.offset : 0);
  }

  const int shared = c.in_place ? c.op->in_place_input : c.op->state_input;
  Range made;
  if (shared < 0) {
    const std::vector<std::byte> poison(prepared.want.bytes.size(), kPoison);
    TANDEM_ASSIGN(made, Upload(poison));
  }
  Range& output = shared < 0 ? made : ranges[static_cast<size_t>(shared)];
  Range scratch;
  if (choice.scratch_bytes > 0) {
    const std::vector<std::byte> poison(static_cast<size_t>(choice.scratch_bytes), kPoison);
    TANDEM_ASSIGN(scratch, Upload(poison));
  }

  const KernelCall call{
      .kernel = choice.kernel,
      .op = c.op,
      .attributes = c.attributes,
      .inputs = arguments,
      .output = {.layout = prepared.want.layout,
                 .buffer = output.buffer.get(),
                 .offset = output.offset},
      .scratch = scratch.buffer.get(),
      .scratch_offset = scratch.offset,
      .scratch_bytes = choice.scratch_bytes,
      .name = c.op->name,
  };
  const int64_t kernels = device_.counters().kernels;
  TANDEM_CHECK(stream_->Run({&call, 1}));
  TANDEM_CHECK(stream_->Synchronize(stream_->Record()));
  const int64_t ran = device_.counters().kernels - kernels;
  const int64_t expected = prepared.want.layout.Elements() == 0 ? 0 : 1;
  if (ran != expected)
    return Fail(ErrorCode::kInternal, "the device counted {} kernels instead of {}", ran, expected);

  for (size_t i = 0; i < n; ++i) {
    if (!c.inputs[i].present || static_cast<int>(i) == shared) continue;
    TANDEM_ASSIGN(const auto after, Download(ranges[i], fmt::format("input {}", i)));
    if (after != given[i]) return Fail(ErrorCode::kInternal, "input {} was changed", i);
  }
  if (scratch.buffer != nullptr) {
    TANDEM_CHECK(Download(scratch, "scratch"));
  }
  Arranged got;
  got.layout = prepared.want.layout;
  TANDEM_ASSIGN(got.bytes, Download(output, "output"));
  if (prepared.want.layout.Elements() == 0) return Outcome{};
  return Compare(prepared, Decode(got.host()), Decode(prepared.want.host()));
}

Outcome Runner::Run(const Case& c, Prepared& prepared) {
  const Question question(c, prepared);
  const auto choice = device_.FindKernel(question.query);
  if (!choice) {
    if (choice.error().code == ErrorCode::kUnsupported && !choice.error().message.empty())
      return {Verdict::kUnsupported, choice.error().message};
    return {Verdict::kFailed, fmt::format("FindKernel: {}", choice.error().message)};
  }
  auto outcome = Try(c, prepared, *choice);
  if (outcome) return *outcome;
  // A stream that failed is of no use to the next case.
  (void)stream_->Synchronize(stream_->Record());
  stream_->Reset();
  return {Verdict::kFailed, outcome.error().message};
}

}  // namespace tandem::conformance
