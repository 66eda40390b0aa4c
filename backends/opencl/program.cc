#include "backends/opencl/program.h"

#include <unistd.h>
#include <xxhash.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>
#include <vector>

#include "backends/opencl/error.h"

namespace tandem::opencl {
namespace {

constexpr char kMagic[8] = {'T', 'N', 'D', 'M', 'C', 'L', '0', '1'};

struct FileHeader {
  char magic[8];
  uint64_t bytes;
  XXH128_hash_t checksum;
};

std::string DeviceText(cl_device_id device, cl_device_info info) {
  size_t bytes = 0;
  if (clGetDeviceInfo(device, info, 0, nullptr, &bytes) != CL_SUCCESS || bytes == 0) return "";
  std::string text(bytes, '\0');
  clGetDeviceInfo(device, info, bytes, text.data(), nullptr);
  return text;
}

// Each part with its length, so that no two lists of parts make the same bytes.
std::string KeyOf(cl_device_id device, std::string_view source, std::string_view options) {
  std::string all;
  const auto add = [&](std::string_view part) {
    all += fmt::format("{}:", part.size());
    all += part;
  };
  add(source);
  add(options);
  for (const cl_device_info info :
       {CL_DEVICE_NAME, CL_DEVICE_VENDOR, CL_DEVICE_VERSION, CL_DRIVER_VERSION})
    add(DeviceText(device, info));
  const XXH128_hash_t hash = XXH3_128bits(all.data(), all.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::optional<std::vector<unsigned char>> ReadBinary(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return std::nullopt;
  const auto size = static_cast<uint64_t>(file.tellg());
  file.seekg(0);
  FileHeader header;
  if (!file.read(reinterpret_cast<char*>(&header), sizeof header)) return std::nullopt;
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0 || header.bytes != size - sizeof header)
    return std::nullopt;
  std::vector<unsigned char> binary(header.bytes);
  if (!file.read(reinterpret_cast<char*>(binary.data()),
                 static_cast<std::streamsize>(header.bytes)))
    return std::nullopt;
  if (!XXH128_isEqual(XXH3_128bits(binary.data(), binary.size()), header.checksum))
    return std::nullopt;
  return binary;
}

void WriteBinary(const std::string& path, const std::vector<unsigned char>& binary) {
  static std::atomic<int> serial{0};
  const std::string aside = fmt::format("{}.{}.{}", path, getpid(), serial++);
  FileHeader header;
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.bytes = binary.size();
  header.checksum = XXH3_128bits(binary.data(), binary.size());
  std::error_code ignored;
  {
    std::ofstream file(aside, std::ios::binary | std::ios::trunc);
    file.write(reinterpret_cast<const char*>(&header), sizeof header);
    file.write(reinterpret_cast<const char*>(binary.data()),
               static_cast<std::streamsize>(binary.size()));
    file.close();
    if (!file) {
      std::filesystem::remove(aside, ignored);
      return;
    }
  }
  std::filesystem::rename(aside, path, ignored);
  if (ignored) std::filesystem::remove(aside, ignored);
}

ProgramHandle FromBinary(cl_context context, cl_device_id device, const std::string& options,
                         const std::vector<unsigned char>& binary) {
  const size_t size = binary.size();
  const unsigned char* data = binary.data();
  cl_int status = CL_SUCCESS, of_binary = CL_SUCCESS;
  ProgramHandle program(
      clCreateProgramWithBinary(context, 1, &device, &size, &data, &of_binary, &status));
  if (status != CL_SUCCESS || of_binary != CL_SUCCESS) return nullptr;
  if (clBuildProgram(program.get(), 1, &device, options.c_str(), nullptr, nullptr) != CL_SUCCESS)
    return nullptr;
  return program;
}

std::vector<unsigned char> BinaryOf(cl_program program) {
  size_t size = 0;
  if (clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, nullptr) != CL_SUCCESS)
    return {};
  std::vector<unsigned char> binary(size);
  unsigned char* data = binary.data();
  if (size == 0 ||
      clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof data, &data, nullptr) != CL_SUCCESS)
    return {};
  return binary;
}

// The compiler's first lines, as one.
std::string BuildLog(cl_program program, cl_device_id device) {
  size_t bytes = 0;
  clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, 0, nullptr, &bytes);
  std::string log(bytes, '\0');
  clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, bytes, log.data(), nullptr);
  log = log.substr(0, std::min(log.find('\0'), size_t{400}));
  for (char& c : log)
    if (c == '\n') c = ' ';
  return log;
}

}  // namespace

std::string ProgramFolder(std::string_view option) {
  if (option == "none") return "";
  if (!option.empty()) return std::string(option);
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0')
    return std::string(cache) + "/tandem/opencl";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0')
    return std::string(home) + "/.cache/tandem/opencl";
  return "";
}

Result<BuiltProgram> BuildProgram(std::string_view name, cl_context context, cl_device_id device,
                                  std::string_view source, const std::string& options,
                                  const std::string& folder) {
  BuiltProgram built;
  if (!folder.empty()) {
    built.file = fmt::format("{}/{}.bin", folder, KeyOf(device, source, options));
    if (const auto binary = ReadBinary(built.file)) {
      built.program = FromBinary(context, device, options, *binary);
      built.from_cache = built.program != nullptr;
      if (built.from_cache) return built;
    }
  }
  const char* text = source.data();
  const size_t size = source.size();
  cl_int status = CL_SUCCESS;
  built.program.reset(clCreateProgramWithSource(context, 1, &text, &size, &status));
  if (status != CL_SUCCESS)
    return Fail(ErrorCode::kDevice, "device {}: clCreateProgramWithSource: {}", name,
                StatusName(status));
  status = clBuildProgram(built.program.get(), 1, &device, options.c_str(), nullptr, nullptr);
  if (status != CL_SUCCESS)
    return Fail(ErrorCode::kDevice, "device {}: its kernels do not build: {}: {}", name,
                StatusName(status), BuildLog(built.program.get(), device));
  if (built.file.empty()) return built;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (const auto binary = BinaryOf(built.program.get()); !error && !binary.empty())
    WriteBinary(built.file, binary);
  return built;
}

}  // namespace tandem::opencl
