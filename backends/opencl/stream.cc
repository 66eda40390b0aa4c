#include "backends/opencl/stream.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backends/opencl/copy.h"
#include "backends/opencl/error.h"
#include "backends/opencl/kernels.h"

namespace tandem::opencl {
namespace {

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

std::string InputName(int input) { return input < 0 ? "output" : fmt::format("input {}", input); }

}  // namespace

Result<std::unique_ptr<ClStream>> ClStream::Create(Device& device, ClMemory& memory,
                                                   cl_context context, cl_device_id id,
                                                   cl_program program, int lanes,
                                                   LiveCounters& counters) {
  cl_int status = CL_SUCCESS;
  QueueHandle queue(clCreateCommandQueueWithProperties(context, id, nullptr, &status));
  MemoryHandle faults;
  if (status == CL_SUCCESS)
    faults.reset(clCreateBuffer(context, CL_MEM_READ_WRITE, sizeof(Fault), nullptr, &status));
  std::unique_ptr<ClStream> stream;
  if (status == CL_SUCCESS) {
    stream.reset(new ClStream(device, memory, context, std::move(queue), std::move(faults), program,
                              lanes, counters));
    status = stream->ClearFaults();
  }
  if (status != CL_SUCCESS)
    return tandem::Fail(ErrorCode::kDevice, "device {}: a stream: {}", device.name(),
                        StatusName(status));
  return stream;
}

ClStream::ClStream(Device& device, ClMemory& memory, cl_context context, QueueHandle queue,
                   MemoryHandle faults, cl_program program, int lanes, LiveCounters& counters)
    : device_(device),
      memory_(memory),
      context_(context),
      queue_(std::move(queue)),
      faults_(std::move(faults)),
      counters_(counters),
      launcher_(program, queue_.get(), lanes, faults_.get()),
      timeline_(std::make_shared<Timeline>(std::string(device.name()), counters)) {}

ClStream::~ClStream() {
  (void)timeline_->Synchronize(timeline_->Record());
  clFinish(queue_.get());
}

std::span<const cl_event> ClStream::Before() {
  std::erase_if(before_, [](const EventHandle& event) {
    cl_int status = CL_QUEUED;
    clGetEventInfo(event.get(), CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, nullptr);
    return status == CL_COMPLETE;
  });
  before_raw_.clear();
  for (const EventHandle& event : before_) before_raw_.push_back(event.get());
  return before_raw_;
}

void ClStream::Follow(cl_event event) {
  clFlush(queue_.get());
  before_.clear();
  before_.push_back(Share(event));
}

void ClStream::Finish(EventHandle event, const DeviceCounters& work, std::string what) {
  Follow(event.get());
  timeline_->AddCommand(std::move(event), work, std::move(what));
}

void ClStream::Fail(std::string_view what, cl_int status) {
  timeline_->AddFailure({ErrorCode::kDevice, fmt::format("device {}, {}: {}", device_.name(), what,
                                                         StatusName(status))});
}

cl_int ClStream::ClearFaults() {
  const Fault none;
  return clEnqueueWriteBuffer(queue_.get(), faults_.get(), CL_TRUE, 0, sizeof none, &none, 0,
                              nullptr, nullptr);
}

Error ClStream::ErrorOfFault(std::span<const KernelCall> calls, const Fault& fault) const {
  const KernelCall& call = calls[static_cast<size_t>(fault.node - 1)];
  return {ErrorCode::kInvalid,
          fmt::format("device {}, node {} ({}): row {} is not one of {}", device_.name(), call.name,
                      call.op->name, fault.id, call.inputs[0].layout.dims[0])};
}

Result<void> ClStream::CheckArgument(const KernelCall& call, const TensorArg& argument,
                                     int input) const {
  const auto where = [&] {
    return fmt::format("device {}, node {} ({}), {}", device_.name(), call.name, call.op->name,
                       InputName(input));
  };
  if (argument.buffer == nullptr) {
    if (input >= call.op->required_inputs || argument.layout.Elements() == 0) return {};
    return tandem::Fail(ErrorCode::kInvalid, "{}: no buffer for {}", where(),
                        ToString(argument.layout));
  }
  if (!IsOwn(*argument.buffer))
    return tandem::Fail(ErrorCode::kInvalid,
                        "{}: is in memory {}, to which this device has no access", where(),
                        argument.buffer->memory().name());
  if (argument.packed != nullptr && !argument.packed->name.empty())
    return tandem::Fail(ErrorCode::kInvalid, "{}: unknown weight layout {}", where(),
                        argument.packed->name);
  if (!IsWithin(argument.offset, argument.layout.SpanBytes(), *argument.buffer))
    return tandem::Fail(ErrorCode::kInvalid,
                        "{}: {} at offset {} does not fit its buffer of {} bytes", where(),
                        ToString(argument.layout), argument.offset, argument.buffer->bytes());
  return {};
}

Result<void> ClStream::CheckCall(const KernelCall& call) const {
  if (OpKernelOf(call) == nullptr)
    return tandem::Fail(ErrorCode::kInvalid,
                        "device {}, node {}: a kernel that this device did not give",
                        device_.name(), call.name);
  for (size_t i = 0; i < call.inputs.size(); ++i)
    TANDEM_CHECK(CheckArgument(call, call.inputs[i], static_cast<int>(i)));
  return CheckArgument(call, call.output, -1);
}

Result<void> ClStream::Run(std::span<const KernelCall> calls) {
  const auto is_work = [](const KernelCall& call) { return call.output.layout.Elements() > 0; };
  int64_t count = 0;
  const KernelCall* last = nullptr;
  for (const KernelCall& call : calls) {
    if (!is_work(call)) continue;
    TANDEM_CHECK(CheckCall(call));
    ++count;
    last = &call;
  }
  if (count == 0 || timeline_->HasFailed()) return {};
  ++counters_.handovers;
  const std::span<const cl_event> before = Before();
  const auto waits = static_cast<cl_uint>(before.size());
  const cl_event* list = before.empty() ? nullptr : before.data();
  EventHandle event;
  DeviceCounters work;
  bool takes_ids = false;
  std::string broken;  // The node at which the batch broke off.
  cl_int status = CL_SUCCESS;
  for (size_t i = 0; i < calls.size() && status == CL_SUCCESS; ++i) {
    const KernelCall& call = calls[i];
    if (!is_work(call)) continue;
    const OpKernel& kernel = *OpKernelOf(call);
    takes_ids = takes_ids || kernel.ids_input >= 0;
    launcher_.Prepare(before, static_cast<int32_t>(i), &call == last && !takes_ids);
    status = kernel.launch(launcher_, call);
    if (status != CL_SUCCESS) {
      broken = fmt::format("node {} ({})", call.name, call.op->name);
      break;
    }
    ++work.kernels;
    event = launcher_.TakeEvent();
  }
  std::unique_ptr<Fault> fault;
  cl_event end = nullptr;
  if (takes_ids) {
    fault = std::make_unique<Fault>();
    const cl_int read = clEnqueueReadBuffer(queue_.get(), faults_.get(), CL_FALSE, 0, sizeof *fault,
                                            fault.get(), waits, list, &end);
    if (status == CL_SUCCESS) status = read;
  } else if (event == nullptr) {
    // A batch that broke off, or whose last call had nothing to launch.
    const cl_int marked = clEnqueueMarkerWithWaitList(queue_.get(), waits, list, &end);
    if (status == CL_SUCCESS) status = marked;
  }
  if (end != nullptr) event.reset(end);
  if (event != nullptr) {
    Follow(event.get());
    const std::string what =
        fmt::format("{} nodes up to {} ({})", work.kernels, last->name, last->op->name);
    if (fault != nullptr)
      timeline_->AddCheckedCommand(
          std::move(event), work, what, std::move(fault),
          [this, calls](const Fault& found) { return ErrorOfFault(calls, found); });
    else
      timeline_->AddCommand(std::move(event), work, what);
  } else if (fault != nullptr) {
    clFinish(queue_.get());  // Nothing tells when the read is done that writes to it.
  }
  if (status != CL_SUCCESS) Fail(broken.empty() ? "the end of a batch" : broken, status);
  return {};
}

std::string ClStream::Describe(const CopyCall& call) const {
  return fmt::format("copy of {} bytes from memory {} to {}", call.Bytes(),
                     call.source->memory().name(), call.target->memory().name());
}

namespace {

void MoveOnHost(const CopyCall& call) {
  for (int64_t plane = 0; plane < call.planes; ++plane)
    for (int64_t row = 0; row < call.rows; ++row)
      std::memcpy(call.target->host() + call.target_offset + plane * call.target_plane_pitch +
                      row * call.target_row_pitch,
                  call.source->host() + call.source_offset + plane * call.source_plane_pitch +
                      row * call.source_row_pitch,
                  static_cast<size_t>(call.row_bytes));
}

}  // namespace

// The attendant moves the bytes when a marker tells that it is their turn, and ends the user event
// with which the queue goes on.
Result<void> ClStream::CopyOnHost(const CopyCall& call) {
  const std::span<const cl_event> before = Before();
  cl_int status = CL_SUCCESS;
  EventHandle done(clCreateUserEvent(context_, &status));
  cl_event turn = nullptr;
  if (status == CL_SUCCESS)
    status = clEnqueueMarkerWithWaitList(queue_.get(), static_cast<cl_uint>(before.size()),
                                         before.empty() ? nullptr : before.data(), &turn);
  if (status != CL_SUCCESS) {
    Fail(Describe(call), status);
    return {};
  }
  std::vector<EventHandle> events;
  events.emplace_back(turn);
  // Until then the event is the timeline's too.
  const cl_event end = done.get();
  Finish(std::move(done), {.copies = 1}, Describe(call));
  attendant_.When(
      std::move(events), [call, owner = std::make_shared<EventHandle>(Share(end))](bool is_turn) {
        if (is_turn) MoveOnHost(call);
        clSetUserEventStatus(owner->get(), is_turn ? CL_COMPLETE : CL_INVALID_OPERATION);
      });
  return {};
}

Result<void> ClStream::Copy(const CopyCall& call) {
  if (call.row_bytes < 0 || call.rows < 0 || call.planes < 0)
    return tandem::Fail(ErrorCode::kInvalid, "device {}: copy of {} x {} x {} bytes",
                        device_.name(), call.planes, call.rows, call.row_bytes);
  if (call.row_bytes == 0 || call.rows == 0 || call.planes == 0) return {};
  if (call.source == nullptr || call.target == nullptr)
    return tandem::Fail(ErrorCode::kInvalid, "device {}: copy of {} bytes without a {}",
                        device_.name(), call.Bytes(), call.source == nullptr ? "source" : "target");
  const bool from_own = IsOwn(*call.source), to_own = IsOwn(*call.target);
  TransferEnds ends;
  if (from_own) ends.source = static_cast<ClBuffer*>(call.source)->handle();
  if (to_own) ends.target = static_cast<ClBuffer*>(call.target)->handle();
  ends.source_host = from_own ? nullptr : call.source->host();
  ends.target_host = to_own ? nullptr : call.target->host();
  if ((!from_own && ends.source_host == nullptr) || (!to_own && ends.target_host == nullptr))
    return tandem::Fail(ErrorCode::kUnsupported,
                        "device {}: does not copy from memory {} to memory {}", device_.name(),
                        call.source->memory().name(), call.target->memory().name());
  if (!IsBoxWithin(call, call.source_offset, call.source_row_pitch, call.source_plane_pitch,
                   *call.source))
    return tandem::Fail(ErrorCode::kInvalid,
                        "device {}: copy of {} bytes from {}, past a buffer of {}", device_.name(),
                        call.Bytes(), call.source_offset, call.source->bytes());
  if (!IsBoxWithin(call, call.target_offset, call.target_row_pitch, call.target_plane_pitch,
                   *call.target))
    return tandem::Fail(ErrorCode::kInvalid,
                        "device {}: copy of {} bytes to {}, past a buffer of {}", device_.name(),
                        call.Bytes(), call.target_offset, call.target->bytes());
  if (timeline_->HasFailed()) return {};

  ++counters_.handovers;
  if (!from_own && !to_own) return CopyOnHost(call);
  const std::span<const cl_event> before = Before();
  const std::vector<CopyCall> boxes = SplitIntoTransfers(call);
  for (size_t i = 0; i < boxes.size(); ++i) {
    cl_event event = nullptr;
    const bool is_last = i + 1 == boxes.size();
    const cl_int status =
        EnqueueTransfer(queue_.get(), ends, boxes[i], before, is_last ? &event : nullptr);
    if (status != CL_SUCCESS) {
      // Points come after the transfers that were given.
      cl_event marker = nullptr;
      if (i > 0 && clEnqueueMarkerWithWaitList(queue_.get(), 0, nullptr, &marker) == CL_SUCCESS)
        Finish(EventHandle(marker), {}, Describe(call));
      Fail(Describe(call), status);
      return {};
    }
    if (!is_last) continue;
    DeviceCounters work{.copies = 1};
    (from_own && to_own ? work.bytes_within
     : from_own         ? work.bytes_out
                        : work.bytes_in) = call.Bytes();
    Finish(EventHandle(event), work, Describe(call));
  }
  return {};
}

Result<void> ClStream::Fill(Buffer& buffer, int64_t offset, int64_t bytes, uint8_t value) {
  if (!IsOwn(buffer))
    return tandem::Fail(ErrorCode::kUnsupported, "device {}: does not fill memory {}",
                        device_.name(), buffer.memory().name());
  if (!IsWithin(offset, bytes, buffer))
    return tandem::Fail(ErrorCode::kInvalid,
                        "device {}: fill of {} bytes at {}, past a buffer of {}", device_.name(),
                        bytes, offset, buffer.bytes());
  if (bytes == 0 || timeline_->HasFailed()) return {};
  const std::span<const cl_event> before = Before();
  const std::string what = fmt::format("fill of {} bytes", bytes);
  cl_event event = nullptr;
  const cl_int status = clEnqueueFillBuffer(
      queue_.get(), static_cast<ClBuffer&>(buffer).handle(), &value, sizeof value,
      static_cast<size_t>(offset), static_cast<size_t>(bytes), static_cast<cl_uint>(before.size()),
      before.empty() ? nullptr : before.data(), &event);
  ++counters_.handovers;
  if (status == CL_SUCCESS)
    Finish(EventHandle(event), {.fills = 1}, what);
  else
    Fail(what, status);
  return {};
}

Result<void> ClStream::Wait(Stream& other, uint64_t point) {
  if (&other == this) return {};
  if (&other.device() == &device_) {
    const std::shared_ptr<Timeline>& theirs = static_cast<ClStream&>(other).timeline_;
    // Taken before the outcome is asked for, or it could come between.
    std::vector<EventHandle> events = theirs->EventsBefore(point);
    if (const Result<bool> reached = theirs->Reached(point); !reached) {
      timeline_->AddFailure(reached.error());
      return {};
    } else if (*reached) {
      return {};
    }
    for (EventHandle& event : events) {
      auto gate = std::make_shared<Gate>();
      gate->event = std::move(event);
      gate->other = theirs;
      gate->point = point;
      before_.push_back(Share(gate->event.get()));
      timeline_->AddGate(std::move(gate));
    }
    return {};
  }
  auto gate = std::make_shared<Gate>();
  cl_int status = CL_SUCCESS;
  gate->event.reset(clCreateUserEvent(context_, &status));
  if (status != CL_SUCCESS)
    return tandem::Fail(ErrorCode::kDevice, "device {}: waiting for a stream of {}: {}",
                        device_.name(), other.device().name(), StatusName(status));
  // In the timeline first: it may open at any moment.
  before_.push_back(Share(gate->event.get()));
  timeline_->AddGate(gate);
  other.OnReached(point, [opener = std::make_shared<GateOpener>(gate)](
                             const Result<void>& outcome) { opener->gate->Open(outcome); });
  return {};
}

void ClStream::OnReached(uint64_t point, std::function<void(const Result<void>&)> done) {
  std::vector<EventHandle> events = timeline_->OnReached(point, std::move(done));
  if (events.empty()) return;
  attendant_.When(std::move(events), [timeline = timeline_](bool) { timeline->Poll(); });
}

void ClStream::Reset() {
  (void)timeline_->Synchronize(timeline_->Record());
  before_.clear();
  timeline_->Reset();
  if (const cl_int status = ClearFaults(); status != CL_SUCCESS) Fail("a reset", status);
}

}  // namespace tandem::opencl
