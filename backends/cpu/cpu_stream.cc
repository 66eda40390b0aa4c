#include "backends/cpu/cpu_stream.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace tandem::cpu {
namespace {

constexpr int kPauses = 400;
constexpr int kYields = 100;
// Transfers up to this many bytes are not worth sharing.
constexpr int64_t kCopyChunk = int64_t{256} << 10;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Whether a box of bytes lies within a buffer.
Result<void> CheckBox(const Buffer& buffer, std::string_view side, int64_t offset,
                      int64_t row_pitch, int64_t plane_pitch, const CopyCall& call) {
  using Wide = __int128;
  const Wide end = Wide{offset} + Wide{call.row_bytes} + Wide{row_pitch} * (call.rows - 1) +
                   Wide{plane_pitch} * (call.planes - 1);
  if (offset < 0 || row_pitch < 0 || plane_pitch < 0 || end > buffer.bytes())
    return Fail(ErrorCode::kInvalid,
                "copy {} memory {}: {} planes of {} rows of {} bytes at offset {} do not fit the "
                "buffer of {} bytes",
                side, buffer.memory().name(), call.planes, call.rows, call.row_bytes, offset,
                buffer.bytes());
  return {};
}

}  // namespace

CpuStream::CpuStream(Device& device, DeviceState& state)
    : device_(device), state_(state), team_(state.threads), thread_([this] { Loop(); }) {}

CpuStream::~CpuStream() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  commands_arrived_.notify_one();
  thread_.join();
}

uint64_t CpuStream::Push(Command command) {
  bool wake;
  uint64_t number;
  {
    std::lock_guard lock(mutex_);
    pending_.push_back(std::move(command));
    number = ++last_;
    given_.store(number, std::memory_order_release);
    wake = asleep_;
  }
  if (wake) commands_arrived_.notify_one();
  return number;
}

Result<void> CpuStream::Run(std::span<const KernelCall> calls) {
  if (calls.empty()) return {};
  state_.handovers.fetch_add(1, std::memory_order_relaxed);
  Push(calls);
  return {};
}

Result<void> CpuStream::Copy(const CopyCall& call) {
  if (call.row_bytes < 0 || call.rows < 0 || call.planes < 0)
    return Fail(ErrorCode::kInvalid, "copy: negative size {} x {} x {}", call.planes, call.rows,
                call.row_bytes);
  if (call.row_bytes == 0 || call.rows == 0 || call.planes == 0) return {};
  if (call.source == nullptr || call.target == nullptr)
    return Fail(ErrorCode::kInvalid, "copy: no {} buffer",
                call.source == nullptr ? "source" : "target");
  for (const Buffer* buffer : {call.source, call.target}) {
    if (buffer->host() == nullptr)
      return Fail(ErrorCode::kUnsupported, "device {}: can not reach memory {}", device_.name(),
                  buffer->memory().name());
  }
  TANDEM_CHECK(CheckBox(*call.source, "from", call.source_offset, call.source_row_pitch,
                        call.source_plane_pitch, call));
  TANDEM_CHECK(CheckBox(*call.target, "to", call.target_offset, call.target_row_pitch,
                        call.target_plane_pitch, call));
  state_.handovers.fetch_add(1, std::memory_order_relaxed);
  Push(call);
  return {};
}

Result<void> CpuStream::Fill(Buffer& buffer, int64_t offset, int64_t bytes, uint8_t value) {
  if (offset < 0 || bytes < 0 || offset > buffer.bytes() || bytes > buffer.bytes() - offset)
    return Fail(ErrorCode::kInvalid,
                "fill in memory {}: {} bytes at offset {} do not fit the buffer of {} bytes",
                buffer.memory().name(), bytes, offset, buffer.bytes());
  if (bytes == 0) return {};
  if (buffer.host() == nullptr)
    return Fail(ErrorCode::kUnsupported, "device {}: can not reach memory {}", device_.name(),
                buffer.memory().name());
  state_.handovers.fetch_add(1, std::memory_order_relaxed);
  Push(FillCall{buffer.host() + offset, bytes, value});
  return {};
}

uint64_t CpuStream::Record() { return Push(Mark{}); }

Result<void> CpuStream::Wait(Stream& other, uint64_t point) {
  if (&other == this) return {};
  auto awaited = std::make_shared<Awaited>();
  other.OnReached(point, [awaited](const Result<void>& outcome) {
    const std::lock_guard lock(awaited->mutex);
    awaited->outcome = outcome;
    awaited->changed.notify_all();
  });
  Push(WaitCall{std::move(awaited)});
  return {};
}

Result<void> CpuStream::Outcome(uint64_t point) const {
  if (error_ && failed_ <= point && point <= last_) return tl::unexpected<Error>(*error_);
  return {};
}

Result<bool> CpuStream::Reached(uint64_t point) {
  std::lock_guard lock(mutex_);
  if (!IsReached(point)) return false;
  TANDEM_CHECK(Outcome(point));
  return true;
}

Result<void> CpuStream::Synchronize(uint64_t point) {
  std::unique_lock lock(mutex_);
  if (!IsReached(point)) points_reached_.wait(lock, [&] { return reached_ >= point; });
  return Outcome(point);
}

void CpuStream::OnReached(uint64_t point, std::function<void(const Result<void>&)> done) {
  std::unique_lock lock(mutex_);
  if (!IsReached(point)) {
    callbacks_.push_back({point, std::move(done)});
    return;
  }
  const Result<void> outcome = Outcome(point);
  lock.unlock();
  done(outcome);
}

void CpuStream::Reset() {
  std::lock_guard lock(mutex_);
  error_.reset();
  failed_ = 0;
}

// ---- The stream's thread --------------------------------------------------------------------

bool CpuStream::AwaitCommands() {
  const uint64_t done = reached_.load(std::memory_order_relaxed);
  for (int i = 0; i < kPauses + kYields && given_.load(std::memory_order_acquire) == done; ++i) {
    if (i < kPauses)
      Pause();
    else
      std::this_thread::yield();
  }
  std::unique_lock lock(mutex_);
  asleep_ = true;
  commands_arrived_.wait(lock, [&] { return !pending_.empty() || closing_; });
  asleep_ = false;
  running_.clear();
  std::swap(running_, pending_);
  return !running_.empty();
}

void CpuStream::Loop() {
  uint64_t number = 0;
  while (AwaitCommands()) {
    for (const Command& command : running_) {
      ++number;
      bool skip;
      {
        std::lock_guard lock(mutex_);
        skip = error_.has_value();
      }
      Finish(number, skip ? Result<void>{} : Execute(command));
    }
  }
}

void CpuStream::Finish(uint64_t number, Result<void> result) {
  std::unique_lock lock(mutex_);
  if (!result && !error_) {
    error_ = std::move(result).error();
    failed_ = number;
  }
  reached_.store(number, std::memory_order_release);
  // Callbacks run without the lock, so that they may ask this stream for points.
  std::vector<std::pair<Callback, Result<void>>> due;
  for (size_t i = 0; i < callbacks_.size();) {
    if (callbacks_[i].point <= number) {
      Result<void> outcome = Outcome(callbacks_[i].point);
      due.emplace_back(std::move(callbacks_[i]), std::move(outcome));
      callbacks_.erase(callbacks_.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  points_reached_.notify_all();
  lock.unlock();
  for (const auto& [callback, outcome] : due) callback.done(outcome);
}

Result<void> CpuStream::Execute(const Command& command) {
  if (const auto* calls = std::get_if<std::span<const KernelCall>>(&command))
    return Execute(*calls);
  if (const auto* copy = std::get_if<CopyCall>(&command)) return Execute(*copy);
  if (const auto* fill = std::get_if<FillCall>(&command)) return Execute(*fill);
  if (const auto* wait = std::get_if<WaitCall>(&command)) return Execute(*wait);
  return {};
}

Result<void> CpuStream::Execute(std::span<const KernelCall> calls) {
  team_.SetThreads(state_.threads.load(std::memory_order_relaxed));
  const KernelContext context{*state_.simd, team_, rope_};
  int64_t done = 0;
  Result<void> result;
  for (const KernelCall& call : calls) {
    if (call.output.layout.Elements() == 0) continue;
    const auto reachable = [&](const TensorArg& argument) {
      return argument.buffer == nullptr || argument.buffer->host() != nullptr;
    };
    if (!std::all_of(call.inputs.begin(), call.inputs.end(), reachable) ||
        !reachable(call.output)) {
      result = Fail(ErrorCode::kUnsupported,
                    "node {}: device {} can not reach the memory of an "
                    "argument",
                    call.name, device_.name());
      break;
    }
    result = static_cast<const CpuKernel*>(call.kernel)->run(context, call);
    if (!result) {
      result = Fail(result.error().code, "device {}, {}", device_.name(), result.error().message);
      break;
    }
    ++done;
  }
  state_.kernels.fetch_add(done, std::memory_order_relaxed);
  return result;
}

Result<void> CpuStream::Execute(const CopyCall& call) {
  const std::byte* source = call.source->host() + call.source_offset;
  std::byte* target = call.target->host() + call.target_offset;
  const int64_t rows = call.rows * call.planes;
  if (rows == 1) {
    const int64_t chunks = (call.row_bytes + kCopyChunk - 1) / kCopyChunk;
    team_.Run(chunks, [&](int, int64_t chunk) {
      const int64_t begin = chunk * kCopyChunk;
      std::memcpy(target + begin, source + begin,
                  static_cast<size_t>(std::min(kCopyChunk, call.row_bytes - begin)));
    });
  } else {
    const int64_t rows_each = std::max<int64_t>(1, kCopyChunk / call.row_bytes);
    team_.Run((rows + rows_each - 1) / rows_each, [&](int, int64_t chunk) {
      for (int64_t i = chunk * rows_each; i < std::min(rows, (chunk + 1) * rows_each); ++i) {
        const int64_t plane = i / call.rows, row = i % call.rows;
        std::memcpy(target + plane * call.target_plane_pitch + row * call.target_row_pitch,
                    source + plane * call.source_plane_pitch + row * call.source_row_pitch,
                    static_cast<size_t>(call.row_bytes));
      }
    });
  }
  const bool from_here = &call.source->memory() == state_.memory;
  const bool to_here = &call.target->memory() == state_.memory;
  std::atomic<int64_t>& counter = from_here && to_here ? state_.bytes_within
                                  : to_here            ? state_.bytes_in
                                                       : state_.bytes_out;
  counter.fetch_add(call.Bytes(), std::memory_order_relaxed);
  state_.copies.fetch_add(1, std::memory_order_relaxed);
  return {};
}

Result<void> CpuStream::Execute(const FillCall& call) {
  const int64_t chunks = (call.bytes + kCopyChunk - 1) / kCopyChunk;
  team_.Run(chunks, [&](int, int64_t chunk) {
    const int64_t begin = chunk * kCopyChunk;
    std::memset(call.start + begin, call.value,
                static_cast<size_t>(std::min(kCopyChunk, call.bytes - begin)));
  });
  state_.fills.fetch_add(1, std::memory_order_relaxed);
  return {};
}

Result<void> CpuStream::Execute(const WaitCall& call) {
  std::unique_lock lock(call.awaited->mutex);
  call.awaited->changed.wait(lock, [&] { return call.awaited->outcome.has_value(); });
  return *call.awaited->outcome;
}

}  // namespace tandem::cpu
