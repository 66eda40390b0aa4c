#include "backends/registry.h"

#include <gtest/gtest.h>

#include "backends/sim/sim.h"

namespace tandem {
namespace {

// A device with a name and a kind, and nothing else.
class NamedDevice final : public Device {
 public:
  NamedDevice(std::string name, DeviceKind kind, Memory& memory)
      : name_(std::move(name)), kind_(kind), memory_(memory) {}
  std::string_view name() const override { return name_; }
  DeviceProperties properties() const override {
    DeviceProperties properties;
    properties.kind = kind_;
    properties.description = "a name";
    return properties;
  }
  Memory& memory() override { return memory_; }
  Access AccessTo(const Memory&) const override { return Access::kNone; }
  Result<KernelChoice> FindKernel(const KernelQuery&) const override {
    return Fail(ErrorCode::kUnsupported, "device {}: is only a name", name_);
  }
  Result<std::unique_ptr<Stream>> CreateStream() override {
    return Fail(ErrorCode::kUnsupported, "device {}: is only a name", name_);
  }
  DeviceCounters counters() const override { return {}; }

 private:
  const std::string name_;
  const DeviceKind kind_;
  Memory& memory_;
};

class NamedBackend final : public Backend {
 public:
  NamedBackend(std::string name, std::string unavailable)
      : name_(std::move(name)), unavailable_(std::move(unavailable)) {}
  void Add(std::string name, DeviceKind kind, Memory& memory) {
    owned_.push_back(std::make_unique<NamedDevice>(std::move(name), kind, memory));
    devices_.push_back(owned_.back().get());
  }
  std::string_view name() const override { return name_; }
  std::span<Device* const> devices() const override { return devices_; }
  std::string_view unavailable() const override { return unavailable_; }
  void* Extension(std::string_view) const override { return nullptr; }

 private:
  const std::string name_, unavailable_;
  std::vector<std::unique_ptr<NamedDevice>> owned_;
  std::vector<Device*> devices_;
};

std::string Find(Registry& registry, std::string_view spec) {
  const auto found = registry.Find(spec);
  return found ? std::string((*found)->name()) : "error: " + found.error().message;
}

class RegistryTest : public testing::Test {
 protected:
  Registry registry_ = Registry::WithBuiltins();
};

TEST_F(RegistryTest, FindsTheCpu) {
  for (const char* spec : {"cpu", "CPU", "Cpu:0", "cpu:0"})
    EXPECT_EQ(Find(registry_, spec), "cpu:0") << spec;
  EXPECT_EQ(registry_.cpu().name(), "cpu:0");
  EXPECT_TRUE(registry_.cpu().memory().properties().host_access);
}

TEST_F(RegistryTest, ListsTheBackendsInOrder) {
  ASSERT_EQ(registry_.backends().size(), 3u);
  EXPECT_EQ(registry_.backends()[0]->name(), "cpu");
  EXPECT_EQ(registry_.backends()[1]->name(), "opencl");
  EXPECT_EQ(registry_.backends()[2]->name(), "sim");
  EXPECT_EQ(registry_.FindBackend("OpenCL"), registry_.backends()[1].get());
  EXPECT_EQ(registry_.FindBackend("vulkan"), nullptr);
}

TEST_F(RegistryTest, FindsOpenClOrSaysWhyNot) {
  const Backend& opencl = *registry_.FindBackend("opencl");
  if (opencl.devices().empty()) {
    EXPECT_FALSE(opencl.unavailable().empty());
    const std::string error = Find(registry_, "opencl:0");
    EXPECT_NE(error.find(opencl.unavailable()), std::string::npos) << error;
    return;
  }
  EXPECT_EQ(Find(registry_, "opencl"), "opencl:0");
  EXPECT_EQ(Find(registry_, "OpenCL:0"), "opencl:0");
}

TEST_F(RegistryTest, MakesSimulatedDevices) {
  EXPECT_EQ(Find(registry_, "sim"), "sim:0");
  EXPECT_EQ(Find(registry_, "sim:0"), "sim:0");
  EXPECT_EQ(Find(registry_, "sim:name=A,memory=64M"), "sim:A");
  EXPECT_EQ(Find(registry_, "SIM:memory=64M,name=A"), "sim:A");  // The same, written otherwise.
  EXPECT_EQ(Find(registry_, "sim:A"), "sim:A");
  EXPECT_EQ(registry_.FindBackend("sim")->devices().size(), 2u);
  EXPECT_EQ((*registry_.Find("sim:A"))->memory().properties().capacity, 64 << 20);
  const std::string other = Find(registry_, "sim:name=A,memory=32M");
  EXPECT_NE(other.find("other options"), std::string::npos) << other;
  const std::string wrong = Find(registry_, "sim:memroy=32M");
  EXPECT_NE(wrong.find("memroy"), std::string::npos) << wrong;
}

TEST_F(RegistryTest, UnknownNamesListWhatThereIs) {
  for (const char* spec : {"cuda:0", "cpu:1", "opencl:99", "", "gpu0"}) {
    const auto found = registry_.Find(spec);
    ASSERT_FALSE(found) << spec;
    EXPECT_EQ(found.error().code, ErrorCode::kNotFound);
    for (const char* part : {"cpu:0", "sim", spec})
      EXPECT_NE(found.error().message.find(part), std::string::npos) << found.error().message;
    EXPECT_EQ(found.error().message.find('\n'), std::string::npos);
  }
}

TEST_F(RegistryTest, FindsTheFirstOfAKind) {
  Registry registry = Registry::WithBuiltins();
  Memory& host = registry.cpu().memory();
  Registry kinds;
  auto cpu = std::make_unique<NamedBackend>("cpu", "");
  cpu->Add("cpu:0", DeviceKind::kCpu, host);
  auto opencl = std::make_unique<NamedBackend>("opencl", "");
  opencl->Add("opencl:0", DeviceKind::kCpu, host);
  auto cuda = std::make_unique<NamedBackend>("cuda", "no driver");
  kinds.Add(std::move(cpu));
  kinds.Add(std::move(cuda));
  kinds.Add(std::move(opencl));
  EXPECT_EQ(Find(kinds, "accelerator"), "opencl:0");
  const std::string none = Find(kinds, "gpu");
  EXPECT_NE(none.find("opencl:0"), std::string::npos) << none;
  EXPECT_NE(none.find("cuda has none: no driver"), std::string::npos) << none;
  const std::string unavailable = Find(kinds, "cuda");
  EXPECT_NE(unavailable.find("no driver"), std::string::npos) << unavailable;
  const std::string no_sim = Find(kinds, "sim:memory=1M");
  EXPECT_NE(no_sim.find("no device 'sim:memory=1M'"), std::string::npos) << no_sim;

  auto second = std::make_unique<NamedBackend>("other", "");
  second->Add("other:0", DeviceKind::kGpu, host);
  second->Add("other:1", DeviceKind::kAccelerator, host);
  kinds.Add(std::move(second));
  EXPECT_EQ(Find(kinds, "GPU"), "other:0");
  EXPECT_EQ(Find(kinds, "accelerator"), "opencl:0");
}

}  // namespace
}  // namespace tandem
