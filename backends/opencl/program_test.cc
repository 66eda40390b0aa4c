// The folder that keeps built kernels: what is read back, and what is as good as none.
#include "backends/opencl/program.h"

#include <xxhash.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "backends/opencl/opencl_device.h"
#include "backends/opencl/test_device.h"

namespace tandem::opencl {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSource = "__kernel void one(__global int* x) { *x = 1; }";

class ProgramTest : public testing::Test {
 protected:
  void SetUp() override {
    cl_uint count = 0;
    if (clGetPlatformIDs(1, &platform_, &count) != CL_SUCCESS || count == 0 ||
        clGetDeviceIDs(platform_, CL_DEVICE_TYPE_ALL, 1, &device_, nullptr) != CL_SUCCESS)
      GTEST_SKIP() << "no OpenCL device (apt-get install pocl-opencl-icd)";
    context_.reset(clCreateContext(nullptr, 1, &device_, nullptr, nullptr, nullptr));
    folder_ = fs::path(testing::TempDir()) /
              testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  BuiltProgram Build(std::string_view source = kSource, const std::string& options = "") {
    auto built = BuildProgram("opencl:0", context_.get(), device_, source, options, folder_);
    EXPECT_TRUE(built) << built.error().message;
    cl_int status = CL_SUCCESS;
    const KernelHandle kernel(clCreateKernel(built->program.get(), "one", &status));
    EXPECT_EQ(status, CL_SUCCESS);
    return std::move(*built);
  }
  static std::string Read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static void Write(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }

  cl_platform_id platform_ = nullptr;
  cl_device_id device_ = nullptr;
  ContextHandle context_;
  std::string folder_;
};

TEST_F(ProgramTest, IsReadBack) {
  const BuiltProgram first = Build();
  EXPECT_FALSE(first.from_cache);
  ASSERT_TRUE(fs::exists(first.file));
  const BuiltProgram second = Build();
  EXPECT_TRUE(second.from_cache);
  EXPECT_EQ(second.file, first.file);
  // Nothing is left of writing aside.
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
}

TEST_F(ProgramTest, AnotherSourceOrOptionIsAnotherFile) {
  const BuiltProgram first = Build();
  const BuiltProgram defined = Build(kSource, "-DX=1");
  const BuiltProgram longer = Build("__kernel void one(__global int* x) { *x = 2; }");
  EXPECT_FALSE(defined.from_cache);
  EXPECT_FALSE(longer.from_cache);
  EXPECT_NE(first.file, defined.file);
  EXPECT_NE(first.file, longer.file);
  EXPECT_NE(defined.file, longer.file);
}

TEST_F(ProgramTest, ADamagedFileIsReplaced) {
  const BuiltProgram first = Build();
  const std::string good = Read(first.file);
  ASSERT_GT(good.size(), 100u);
  std::vector<std::string> damaged{"",
                                   "x",
                                   good.substr(0, 31),
                                   good.substr(0, good.size() - 1),
                                   good + "x",
                                   std::string(good.size(), '\0')};
  for (const size_t at :
       {size_t{0}, size_t{9}, size_t{20}, size_t{32}, good.size() / 2, good.size() - 1}) {
    damaged.push_back(good);
    damaged.back()[at] = static_cast<char>(damaged.back()[at] ^ 0x10);
  }
  for (const std::string& bytes : damaged) {
    Write(first.file, bytes);
    EXPECT_FALSE(Build().from_cache);
    EXPECT_TRUE(Build().from_cache);
  }
}

TEST_F(ProgramTest, AForeignBinaryIsReplaced) {
  // Whole and with a good checksum, but of no program that this driver knows.
  const BuiltProgram first = Build();
  const std::string payload = "not a program";
  struct {
    char magic[8];
    uint64_t bytes;
    XXH128_hash_t checksum;
  } header;
  std::memcpy(header.magic, Read(first.file).data(), 8);
  header.bytes = payload.size();
  header.checksum = XXH3_128bits(payload.data(), payload.size());
  Write(first.file, std::string(reinterpret_cast<const char*>(&header), sizeof header) + payload);
  EXPECT_FALSE(Build().from_cache);
  EXPECT_TRUE(Build().from_cache);
}

TEST_F(ProgramTest, AFolderThatCanNotBeMadeIsNoError) {
  const std::string file = folder_ + ".file";
  Write(file, "in the way");
  folder_ = file + "/below";
  EXPECT_FALSE(Build().from_cache);
  EXPECT_FALSE(Build().from_cache);
  fs::remove(file);
  folder_.clear();
  const BuiltProgram kept_nowhere = Build();
  EXPECT_EQ(kept_nowhere.file, "");
}

TEST_F(ProgramTest, ABuildThatFailsSaysWhatTheCompilerSays) {
  const auto built =
      BuildProgram("opencl:0", context_.get(), device_, "__kernel void one( {", "", folder_);
  ASSERT_FALSE(built);
  EXPECT_NE(built.error().message.find("opencl:0"), std::string::npos) << built.error().message;
  EXPECT_NE(built.error().message.find("CL_BUILD_PROGRAM_FAILURE (-11)"), std::string::npos)
      << built.error().message;
  EXPECT_EQ(built.error().message.find('\n'), std::string::npos);
}

TEST_F(ProgramTest, FoldersAreWhatWasAskedFor) {
  EXPECT_EQ(ProgramFolder("none"), "");
  EXPECT_EQ(ProgramFolder("there"), "there");
}

TEST_F(ProgramTest, ADeviceKeepsItsKernels) {
  for (const bool again : {false, true}) {
    const TestDevice test(0, {.cache_folder = folder_});
    const auto& device = dynamic_cast<const ClDevice&>(test.device());
    EXPECT_EQ(device.program_file(), "");  // Nothing is built before the first stream.
    const auto stream = test.Open();
    EXPECT_EQ(device.from_cache(), again);
    EXPECT_TRUE(fs::exists(device.program_file()));
  }
}

}  // namespace
}  // namespace tandem::opencl
