#include "backends/sim/stream.h"

#include <cstring>
#include <utility>
#include <vector>

#include "backends/sim/weights.h"

namespace tandem::sim {
namespace {

// The outcome of a point of another stream, as its device reports it. Shared with the callback, so
// that neither stream need outlive the other.
struct Awaited {
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<Result<void>> outcome;
};

bool IsWithin(int64_t offset, int64_t bytes, const Buffer& buffer) {
  return offset >= 0 && bytes >= 0 && bytes <= buffer.bytes() && offset <= buffer.bytes() - bytes;
}

// Whether the box lies in the buffer; no sum overflows on the way.
bool IsBoxWithin(const CopyCall& call, int64_t offset, int64_t row_pitch, int64_t plane_pitch,
                 const Buffer& buffer) {
  if ((call.rows > 1 && row_pitch < 0) || (call.planes > 1 && plane_pitch < 0)) return false;
  int64_t planes = 0, rows = 0, extent = 0;
  if (__builtin_mul_overflow(call.planes - 1, plane_pitch, &planes) ||
      __builtin_mul_overflow(call.rows - 1, row_pitch, &rows) ||
      __builtin_add_overflow(planes, rows, &extent) ||
      __builtin_add_overflow(extent, call.row_bytes, &extent))
    return false;
  return IsWithin(offset, extent, buffer);
}

bool IsEmpty(const Layout& layout) { return layout.Elements() == 0; }

}  // namespace

SimStream::SimStream(Device& device, SimMemory& memory, const SimOptions& options, Faults& faults,
                     LiveCounters& counters)
    : device_(device), memory_(memory), options_(options), faults_(faults), counters_(counters) {
  if (!options_.synchronous) thread_ = std::thread([this] { Loop(); });
}

SimStream::~SimStream() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void SimStream::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Command command = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    lock.unlock();
    Execute(command);
    lock.lock();
    busy_ = false;
    if (queue_.empty()) changed_.notify_all();
  }
}

void SimStream::Execute(Command& command) {
  if (command.work && !timeline_.failed())
    if (Result<void> done = command.work(); !done) timeline_.Fail(std::move(done).error());
  if (command.point != 0) timeline_.Reach(command.point);
}

void SimStream::Enqueue(Command command) {
  if (options_.synchronous) return Execute(command);
  {
    std::lock_guard lock(mutex_);
    queue_.push_back(std::move(command));
  }
  changed_.notify_all();
}

Result<std::byte*> SimStream::Reach(Buffer& buffer) const {
  if (auto* simulated = dynamic_cast<SimBuffer*>(&buffer)) {
    if (IsOwn(buffer) || simulated->host() != nullptr) return simulated->data();
    if (!options_.declines_copies && !simulated->memory().declines_copies())
      return simulated->data();
  } else if (buffer.host() != nullptr || buffer.bytes() == 0) {
    return buffer.host();
  }
  return Fail(ErrorCode::kUnsupported, "device {}: does not reach memory {}", device_.name(),
              buffer.memory().name());
}

Result<void> SimStream::CheckArgument(const KernelCall& call, const TensorArg& argument,
                                      std::string_view what, bool written,
                                      bool may_be_absent) const {
  const auto where = [&] {
    return fmt::format("device {}, node {} ({}), {}", device_.name(), call.name, call.op->name,
                       what);
  };
  const int64_t bytes =
      argument.packed != nullptr ? argument.packed->bytes : argument.layout.SpanBytes();
  if (argument.buffer == nullptr) {
    if (may_be_absent || IsEmpty(argument.layout)) return {};
    return Fail(ErrorCode::kInvalid, "{}: no buffer for {}", where(), ToString(argument.layout));
  }
  const Buffer& buffer = *argument.buffer;
  if (!IsWithin(argument.offset, bytes, buffer))
    return Fail(ErrorCode::kInvalid, "{}: {} at offset {} does not fit its buffer of {} bytes",
                where(), ToString(argument.layout), argument.offset, buffer.bytes());
  if (IsOwn(buffer)) return {};
  if (written)
    return Fail(ErrorCode::kInvalid, "{}: written in memory {}, which is not this device's",
                where(), buffer.memory().name());
  if (device_.AccessTo(buffer.memory()) == Access::kNone)
    return Fail(ErrorCode::kInvalid, "{}: read in memory {}, to which this device has no access",
                where(), buffer.memory().name());
  return {};
}

Result<void> SimStream::CheckCall(const KernelCall& call) const {
  if (call.op == nullptr || call.kernel != call.op)
    return Fail(ErrorCode::kInvalid, "device {}, node {}: a kernel that this device did not give",
                device_.name(), call.name);
  if (IsEmpty(call.output.layout)) return {};
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const TensorArg& input = call.inputs[i];
    TANDEM_CHECK(CheckArgument(call, input, fmt::format("input {}", i), false,
                               static_cast<int>(i) >= call.op->required_inputs));
    if (input.packed == nullptr || input.packed->name.empty()) continue;
    if (!IsPacked(*input.packed) ||
        input.packed->bytes != PackedLayout(input.layout.PackedBytes()).bytes)
      return Fail(ErrorCode::kInvalid, "device {}, node {}, input {}: unknown weight layout {}",
                  device_.name(), call.name, i, input.packed->name);
  }
  TANDEM_CHECK(CheckArgument(call, call.output, "output", true, false));
  if (options_.scratch == 0) return {};
  if (call.scratch == nullptr || call.scratch_bytes < options_.scratch || !IsOwn(*call.scratch) ||
      !IsWithin(call.scratch_offset, call.scratch_bytes, *call.scratch))
    return Fail(ErrorCode::kInvalid, "device {}, node {}: needs {} bytes of scratch, not {} at {}",
                device_.name(), call.name, options_.scratch, call.scratch_bytes,
                call.scratch_offset);
  return {};
}

Result<void> SimStream::RunCall(const KernelCall& call) {
  // Scratch that shares bytes with anything in use shows at once.
  if (call.scratch != nullptr && options_.scratch > 0)
    std::memset(static_cast<SimBuffer*>(call.scratch)->data() + call.scratch_offset, kPoison,
                static_cast<size_t>(options_.scratch));
  const auto data_of = [&](const TensorArg& argument) -> std::byte* {
    if (argument.buffer == nullptr) return nullptr;
    std::byte* base = IsOwn(*argument.buffer) ? static_cast<SimBuffer*>(argument.buffer)->data()
                                              : argument.buffer->host();
    return base + argument.offset;
  };
  std::vector<HostTensor> inputs;
  std::vector<std::vector<std::byte>> unpacked;
  inputs.reserve(call.inputs.size());
  for (const TensorArg& input : call.inputs) {
    HostTensor& tensor = inputs.emplace_back(input.layout, data_of(input));
    if (input.packed == nullptr || !IsPacked(*input.packed)) continue;
    auto& plain = unpacked.emplace_back(input.layout.PackedBytes());
    UnpackBytes(*input.packed, tensor.data, plain.data());
    tensor.data = plain.data();
  }
  const HostTensor output{call.output.layout, data_of(call.output)};
  if (Result<void> done = call.op->reference(inputs, output, call.attributes); !done)
    return Fail(done.error().code, "device {}, node {}: {}", device_.name(), call.name,
                done.error().message);
  ++counters_.kernels;
  return {};
}

Result<void> SimStream::Run(std::span<const KernelCall> calls) {
  for (const KernelCall& call : calls) TANDEM_CHECK(CheckCall(call));
  size_t fault_at = calls.size();
  std::optional<Error> fault;
  for (size_t i = 0; i < calls.size(); ++i) {
    if (IsEmpty(calls[i].output.layout)) continue;
    std::optional<Error> next = faults_.Next(SimCall::kRun);
    if (!next || fault) continue;
    next->message += fmt::format(" (node {})", calls[i].name);
    fault = std::move(next);
    fault_at = i;
  }
  ++counters_.handovers;
  Enqueue({[this, calls, fault_at, fault = std::move(fault)]() -> Result<void> {
    for (size_t i = 0; i < calls.size(); ++i) {
      if (i == fault_at) return tl::unexpected(*fault);
      if (!IsEmpty(calls[i].output.layout)) TANDEM_CHECK(RunCall(calls[i]));
    }
    return {};
  }});
  return {};
}

Result<void> SimStream::Copy(const CopyCall& call) {
  if (call.row_bytes < 0 || call.rows < 0 || call.planes < 0)
    return Fail(ErrorCode::kInvalid, "device {}: copy of {} x {} x {} bytes", device_.name(),
                call.planes, call.rows, call.row_bytes);
  if (call.row_bytes == 0 || call.rows == 0 || call.planes == 0) return {};
  if (call.source == nullptr || call.target == nullptr)
    return Fail(ErrorCode::kInvalid, "device {}: copy of {} bytes without a {}", device_.name(),
                call.Bytes(), call.source == nullptr ? "source" : "target");
  TANDEM_ASSIGN(std::byte * source, Reach(*call.source));
  TANDEM_ASSIGN(std::byte * target, Reach(*call.target));
  const bool is_foreign = !IsOwn(*call.source) && !IsOwn(*call.target) &&
                          (call.source->host() == nullptr || call.target->host() == nullptr);
  if (is_foreign)
    return Fail(ErrorCode::kUnsupported, "device {}: does not copy from memory {} to memory {}",
                device_.name(), call.source->memory().name(), call.target->memory().name());
  if (!IsBoxWithin(call, call.source_offset, call.source_row_pitch, call.source_plane_pitch,
                   *call.source))
    return Fail(ErrorCode::kInvalid, "device {}: copy of {} bytes from {}, past a buffer of {}",
                device_.name(), call.Bytes(), call.source_offset, call.source->bytes());
  if (!IsBoxWithin(call, call.target_offset, call.target_row_pitch, call.target_plane_pitch,
                   *call.target))
    return Fail(ErrorCode::kInvalid, "device {}: copy of {} bytes to {}, past a buffer of {}",
                device_.name(), call.Bytes(), call.target_offset, call.target->bytes());
  Enqueue({[this, call, source, target,
            fault = faults_.Next(SimCall::kCopy)]() mutable -> Result<void> {
    if (fault) return tl::unexpected(std::move(*fault));
    for (int64_t plane = 0; plane < call.planes; ++plane)
      for (int64_t row = 0; row < call.rows; ++row)
        std::memcpy(target + call.target_offset + plane * call.target_plane_pitch +
                        row * call.target_row_pitch,
                    source + call.source_offset + plane * call.source_plane_pitch +
                        row * call.source_row_pitch,
                    static_cast<size_t>(call.row_bytes));
    ++counters_.copies;
    const bool from_own = IsOwn(*call.source), to_own = IsOwn(*call.target);
    if (from_own && to_own) counters_.bytes_within += call.Bytes();
    if (from_own && !to_own) counters_.bytes_out += call.Bytes();
    if (!from_own && to_own) counters_.bytes_in += call.Bytes();
    return {};
  }});
  return {};
}

Result<void> SimStream::Fill(Buffer& buffer, int64_t offset, int64_t bytes, uint8_t value) {
  TANDEM_ASSIGN(std::byte * data, Reach(buffer));
  if (!IsWithin(offset, bytes, buffer))
    return Fail(ErrorCode::kInvalid, "device {}: fill of {} bytes at {}, past a buffer of {}",
                device_.name(), bytes, offset, buffer.bytes());
  if (bytes == 0) return {};
  Enqueue({[this, data, offset, bytes, value,
            fault = faults_.Next(SimCall::kFill)]() mutable -> Result<void> {
    if (fault) return tl::unexpected(std::move(*fault));
    std::memset(data + offset, value, static_cast<size_t>(bytes));
    ++counters_.fills;
    return {};
  }});
  return {};
}

uint64_t SimStream::Record() {
  const uint64_t point = timeline_.Record();
  Enqueue({.work = nullptr, .point = point});
  return point;
}

Result<void> SimStream::Wait(Stream& other, uint64_t point) {
  if (&other.device() != &device_ && !device_.properties().waits_for_others)
    return Fail(ErrorCode::kUnsupported, "device {}: can not wait for a stream of {}",
                device_.name(), other.device().name());
  auto awaited = std::make_shared<Awaited>();
  other.OnReached(point, [awaited](const Result<void>& outcome) {
    std::lock_guard lock(awaited->mutex);
    awaited->outcome = outcome;
    awaited->changed.notify_all();
  });
  Enqueue({[awaited, fault = faults_.Next(SimCall::kWait)]() mutable -> Result<void> {
    if (fault) return tl::unexpected(std::move(*fault));
    std::unique_lock lock(awaited->mutex);
    awaited->changed.wait(lock, [&] { return awaited->outcome.has_value(); });
    return *awaited->outcome;
  }});
  return {};
}

Result<void> SimStream::Synchronize(uint64_t point) {
  std::optional<Error> fault = faults_.Next(SimCall::kSynchronize);
  TANDEM_CHECK(timeline_.Synchronize(point));
  if (fault) return tl::unexpected(std::move(*fault));
  return {};
}

void SimStream::Reset() {
  // A command after the last point may not have had its turn, and its failure belongs to what is
  // forgotten.
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return queue_.empty() && !busy_; });
  timeline_.Reset();
}

}  // namespace tandem::sim
