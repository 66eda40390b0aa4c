#include "tests/conformance/gate.h"

#include <map>
#include <mutex>

#include "tests/conformance/subjects.h"

namespace tandem::conformance {
namespace {

std::mutex g_mutex;
std::map<int, std::shared_future<void>>& Gates() {
  static std::map<int, std::shared_future<void>> gates;
  return gates;
}

Result<void> WaitForGate(std::span<const HostTensor>, const HostTensor&,
                         std::span<const double> attributes) {
  std::shared_future<void> opened;
  {
    std::lock_guard lock(g_mutex);
    opened = Gates().at(static_cast<int>(attributes[0]));
  }
  opened.wait();
  return {};
}

constexpr AttributeSpec kAttributes[] = {{"gate", 0}};
constexpr OpDefinition kWait{
    .name = "wait_for_gate",
    .required_inputs = 0,
    .attributes = kAttributes,
    .reference = WaitForGate,
};

}  // namespace

Gate::Gate() {
  static int next = 0;
  attributes_ = {static_cast<double>(next)};
  {
    std::lock_guard lock(g_mutex);
    Gates()[next++] = opened_.get_future().share();
  }
  Device& device = Accomplice();
  const int64_t one[] = {1};
  const Layout layout = Contiguous(Type::kF32, one);
  buffer_ = std::move(*device.memory().Allocate(layout.PackedBytes()));
  stream_ = std::move(*device.CreateStream());
  const KernelChoice choice = *device.FindKernel({.op = &kWait,
                                                  .attributes = attributes_,
                                                  .inputs = {},
                                                  .present = {},
                                                  .constant = {},
                                                  .output = layout});
  call_ = {.kernel = choice.kernel,
           .op = &kWait,
           .attributes = attributes_,
           .inputs = {},
           .output = {.layout = layout, .buffer = buffer_.get()},
           .name = "gate"};
  // The accomplice takes every call; a failure would show at the first wait.
  (void)stream_->Run({&call_, 1});
  point_ = stream_->Record();
}

Gate::~Gate() { Open(); }

void Gate::Open() {
  if (is_open_) return;
  is_open_ = true;
  opened_.set_value();
}

Result<void> Gate::HoldUp(Stream& stream) { return stream.Wait(*stream_, point_); }

}  // namespace tandem::conformance
