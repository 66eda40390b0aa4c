#include "models/gguf.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "models/mapped_file.h"

namespace tandem {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF files are read in place");

constexpr uint32_t kVersion = 3;
constexpr int64_t kDefaultAlignment = 32;
// Arrays of arrays are legal and unused; deeper ones would only be there to exhaust the stack.
constexpr int kDeepestArray = 4;
// The least that an entry takes in the file; what bounds a believable count.
constexpr int64_t kSmallestKey = 8 + 1 + 4 + 1;         // Length, a letter, type, a byte.
constexpr int64_t kSmallestTensor = 8 + 1 + 4 + 4 + 8;  // Length, a letter, rank, type, offset.

enum class ValueType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64
};
constexpr uint32_t kValueTypes = 13;
constexpr std::string_view kValueTypeNames[kValueTypes] = {
    "u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"};
// Bytes of a value; of a string or an array: of an empty one.
constexpr int64_t kValueBytes[kValueTypes] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};

std::string_view Name(ValueType type) { return kValueTypeNames[static_cast<uint32_t>(type)]; }
int64_t SmallestBytes(ValueType type) { return kValueBytes[static_cast<uint32_t>(type)]; }

// Names of types that this program does not read, so that the message says more than a number.
std::string_view ForeignTypeName(uint32_t id) {
  static constexpr std::pair<uint32_t, std::string_view> kNames[] = {
      {6, "Q5_0"},    {7, "Q5_1"},     {9, "Q8_1"},   {10, "Q2_K"},   {11, "Q3_K"},
      {12, "Q4_K"},   {13, "Q5_K"},    {14, "Q6_K"},  {15, "Q8_K"},   {16, "IQ2_XXS"},
      {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"}, {20, "IQ4_NL"}, {21, "IQ3_S"},
      {22, "IQ2_S"},  {23, "IQ4_XS"},  {24, "I8"},    {25, "I16"},    {28, "F64"},
      {29, "IQ1_M"},  {34, "TQ1_0"},   {35, "TQ2_0"}, {39, "MXFP4"}};
  for (const auto& [number, name] : kNames) {
    if (number == id) return name;
  }
  return "unknown";
}

// A value of the metadata: where its bytes are. Checked when the file is opened.
struct Value {
  ValueType type = ValueType::kU8;
  ValueType element = ValueType::kU8;  // Of an array.
  int64_t count = 1;                   // Elements of an array.
  int64_t offset = 0;                  // Of the value, or of an array's first element.
};

template <class T>
T Load(const std::byte* data) {
  T value;
  std::memcpy(&value, data, sizeof(T));
  return value;
}

// The bytes of the file and how far they were read. Nothing is read that is not there.
class Reader {
 public:
  Reader(std::string file, std::span<const std::byte> bytes)
      : file_(std::move(file)), bytes_(bytes) {}

  int64_t position() const { return position_; }
  int64_t size() const { return static_cast<int64_t>(bytes_.size()); }
  int64_t left() const { return size() - position_; }
  const std::byte* at(int64_t offset) const { return bytes_.data() + offset; }

  // An error at `offset`; `what` is a key, a tensor or a part of the header.
  template <class... Args>
  tl::unexpected<Error> Wrong(ErrorCode code, int64_t offset, std::string_view what,
                              fmt::format_string<Args...> format, Args&&... args) const {
    return Fail(code, "{}: at byte {}: {}: {}", file_, offset, what,
                fmt::format(format, std::forward<Args>(args)...));
  }

  template <class T>
  Result<T> Read(std::string_view what) {
    TANDEM_CHECK(Need(sizeof(T), what));
    const T value = Load<T>(at(position_));
    position_ += sizeof(T);
    return value;
  }

  Result<std::string_view> ReadString(std::string_view what) {
    const int64_t start = position_;
    TANDEM_ASSIGN(const uint64_t length, Read<uint64_t>(what));
    if (length > static_cast<uint64_t>(left())) {
      return Wrong(ErrorCode::kInvalid, start, what,
                   "a string of {} bytes, but the file has only {} more", length, left());
    }
    const std::string_view text(reinterpret_cast<const char*>(at(position_)), length);
    position_ += static_cast<int64_t>(length);
    return text;
  }

  Result<void> Skip(int64_t bytes, std::string_view what) {
    TANDEM_CHECK(Need(bytes, what));
    position_ += bytes;
    return {};
  }

 private:
  Result<void> Need(int64_t bytes, std::string_view what) const {
    if (bytes > left()) {
      return Wrong(ErrorCode::kInvalid, position_, what,
                   "the file ends here: {} bytes are needed, {} are left", bytes, left());
    }
    return {};
  }

  std::string file_;
  std::span<const std::byte> bytes_;
  int64_t position_ = 0;
};

Result<ValueType> ReadValueType(Reader& reader, std::string_view what) {
  const int64_t start = reader.position();
  TANDEM_ASSIGN(const uint32_t number, reader.Read<uint32_t>(what));
  if (number >= kValueTypes) {
    return reader.Wrong(ErrorCode::kInvalid, start, what, "unknown type {} of a value", number);
  }
  return static_cast<ValueType>(number);
}

// Checks a value and goes past it.
Result<Value> ReadValue(Reader& reader, ValueType type, std::string_view what, int depth) {
  Value value{.type = type, .offset = reader.position()};
  if (type == ValueType::kString) {
    TANDEM_CHECK(reader.ReadString(what));
    return value;
  }
  if (type == ValueType::kBool) {
    TANDEM_ASSIGN(const uint8_t flag, reader.Read<uint8_t>(what));
    if (flag > 1) {
      return reader.Wrong(ErrorCode::kInvalid, value.offset, what, "{} is no boolean", flag);
    }
    return value;
  }
  if (type != ValueType::kArray) {
    TANDEM_CHECK(reader.Skip(SmallestBytes(type), what));
    return value;
  }

  if (depth >= kDeepestArray) {
    return reader.Wrong(ErrorCode::kUnsupported, value.offset, what,
                        "arrays within arrays, more than {} deep", kDeepestArray);
  }
  TANDEM_ASSIGN(value.element, ReadValueType(reader, what));
  const int64_t count_at = reader.position();
  TANDEM_ASSIGN(const uint64_t count, reader.Read<uint64_t>(what));
  const int64_t smallest = SmallestBytes(value.element);
  if (count > static_cast<uint64_t>(reader.left() / smallest)) {
    return reader.Wrong(ErrorCode::kInvalid, count_at, what,
                        "an array of {} elements of type {}, but the file has only {} more bytes",
                        count, Name(value.element), reader.left());
  }
  value.count = static_cast<int64_t>(count);
  value.offset = reader.position();
  const bool plain = value.element != ValueType::kString && value.element != ValueType::kArray &&
                     value.element != ValueType::kBool;
  if (plain) {
    TANDEM_CHECK(reader.Skip(value.count * smallest, what));
  } else {
    for (int64_t i = 0; i < value.count; ++i) {
      TANDEM_CHECK(ReadValue(reader, value.element, what, depth + 1));
    }
  }
  return value;
}

// One integer of any width as int64, if it fits.
bool LoadInteger(ValueType type, const std::byte* data, int64_t* out) {
  switch (type) {
    case ValueType::kU8:
      *out = Load<uint8_t>(data);
      return true;
    case ValueType::kI8:
      *out = Load<int8_t>(data);  // NOLINT(bugprone-signed-char-misuse): a signed number.
      return true;
    case ValueType::kU16:
      *out = Load<uint16_t>(data);
      return true;
    case ValueType::kI16:
      *out = Load<int16_t>(data);
      return true;
    case ValueType::kU32:
      *out = Load<uint32_t>(data);
      return true;
    case ValueType::kI32:
      *out = Load<int32_t>(data);
      return true;
    case ValueType::kI64:
      *out = Load<int64_t>(data);
      return true;
    case ValueType::kU64:
      *out = Load<int64_t>(data);
      return *out >= 0;
    default:
      return false;
  }
}

bool IsInteger(ValueType type) {
  return SmallestBytes(type) <= 8 && type != ValueType::kBool && type != ValueType::kString &&
         type != ValueType::kF32 && type != ValueType::kF64;
}

// What the tensor list says about one tensor, before its data are located.
struct TensorEntry {
  std::string_view name;
  int64_t entry_at = 0;  // Of the entry, for messages.
  Type type = Type::kF32;
  std::vector<int64_t> dims;  // Outermost first.
  int64_t bytes = 0;
  uint64_t offset = 0;  // From the start of the data section.
};

// Bytes of a tensor, with dimensions in the file's order (innermost first).
Result<int64_t> TensorBytes(const Reader& reader, int64_t at, std::string_view what, Type type,
                            std::span<const int64_t> dims) {
  const TypeInfo& info = Info(type);
  const int64_t row = dims.empty() ? 1 : dims[0];
  if (row % info.block_elements != 0) {
    return reader.Wrong(ErrorCode::kInvalid, at, what,
                        "rows of {} elements are no multiple of the {} that a block of {} holds",
                        row, info.block_elements, info.name);
  }
  // Zero dimensions count as one here, so that no product of the others can overflow later.
  int64_t product = 1;
  bool empty = false;
  for (const int64_t dim : dims) {
    empty |= dim == 0;
    if (__builtin_mul_overflow(product, std::max<int64_t>(dim, 1), &product)) {
      return reader.Wrong(ErrorCode::kInvalid, at, what, "the number of elements overflows");
    }
  }
  int64_t bytes = 0;
  if (__builtin_mul_overflow(product / info.block_elements + 1, info.block_bytes, &bytes)) {
    return reader.Wrong(ErrorCode::kInvalid, at, what, "the number of bytes overflows");
  }
  return empty ? 0 : BytesOf(type, product);
}

Result<TensorEntry> ReadTensorEntry(Reader& reader, uint64_t index) {
  TensorEntry entry;
  entry.entry_at = reader.position();
  TANDEM_ASSIGN(entry.name, reader.ReadString(fmt::format("name of tensor {}", index)));
  const std::string what = fmt::format("tensor '{}'", Printable(entry.name));
  if (entry.name.empty()) {
    return reader.Wrong(ErrorCode::kInvalid, entry.entry_at, what, "tensor {} has no name", index);
  }
  const int64_t rank_at = reader.position();
  TANDEM_ASSIGN(const uint32_t rank, reader.Read<uint32_t>(what));
  if (rank > kMaxRank) {
    return reader.Wrong(ErrorCode::kInvalid, rank_at, what, "{} dimensions; at most {} are read",
                        rank, kMaxRank);
  }
  for (uint32_t i = 0; i < rank; ++i) {
    const int64_t dim_at = reader.position();
    TANDEM_ASSIGN(const uint64_t dim, reader.Read<uint64_t>(what));
    if (dim > static_cast<uint64_t>(INT64_MAX)) {
      return reader.Wrong(ErrorCode::kInvalid, dim_at, what, "dimension {} is {}", i, dim);
    }
    entry.dims.push_back(static_cast<int64_t>(dim));
  }
  const int64_t type_at = reader.position();
  TANDEM_ASSIGN(const uint32_t number, reader.Read<uint32_t>(what));
  const std::optional<Type> type =
      number > INT32_MAX ? std::nullopt : TypeFromGguf(static_cast<int32_t>(number));
  if (!type) {
    return reader.Wrong(ErrorCode::kUnsupported, type_at, what, "type {} ({}) is not supported",
                        number, ForeignTypeName(number));
  }
  entry.type = *type;
  TANDEM_ASSIGN(entry.bytes, TensorBytes(reader, rank_at, what, entry.type, entry.dims));
  std::reverse(entry.dims.begin(), entry.dims.end());
  TANDEM_ASSIGN(entry.offset, reader.Read<uint64_t>(what));
  return entry;
}

}  // namespace

struct GgufFile::Contents {
  std::string path;
  std::shared_ptr<const MappedFile> mapped;
  std::vector<std::string_view> keys;
  std::unordered_map<std::string_view, Value> values;
  std::vector<std::shared_ptr<const Constant>> tensors;
  std::unordered_map<std::string_view, size_t> tensor_index;

  const std::byte* at(int64_t offset) const { return mapped->bytes().data() + offset; }
  std::string_view StringAt(int64_t offset) const {
    return {reinterpret_cast<const char*>(at(offset) + 8), Load<uint64_t>(at(offset))};
  }
  Result<const Value*> Find(std::string_view key) const {
    const auto it = values.find(key);
    if (it == values.end()) {
      return Fail(ErrorCode::kNotFound, "{}: key '{}' is missing", Printable(path), Printable(key));
    }
    return &it->second;
  }
  tl::unexpected<Error> WrongType(std::string_view key, const Value& value,
                                  std::string_view wanted) const {
    std::string type(Name(value.type));
    if (value.type == ValueType::kArray) type += fmt::format(" of {}", Name(value.element));
    return Fail(ErrorCode::kInvalid, "{}: at byte {}: key '{}' has type {}; {} is needed",
                Printable(path), value.offset, Printable(key), type, wanted);
  }

  Result<uint64_t> ReadHeader(Reader& reader, uint64_t* tensor_count);
  Result<void> ReadKeys(Reader& reader, uint64_t count);
  Result<int64_t> Alignment(const Reader& reader) const;
  Result<void> ReadTensors(Reader& reader, uint64_t count);
  Result<void> PlaceTensors(const Reader& reader, int64_t data_start, int64_t alignment,
                            std::vector<TensorEntry> entries);
};

// Returns the number of keys.
Result<uint64_t> GgufFile::Contents::ReadHeader(Reader& reader, uint64_t* tensor_count) {
  if (reader.size() == 0) {
    return reader.Wrong(ErrorCode::kInvalid, 0, "header", "the file is empty");
  }
  TANDEM_ASSIGN(const uint32_t magic, reader.Read<uint32_t>("header"));
  if (std::memcmp(&magic, "GGUF", 4) != 0) {
    return reader.Wrong(ErrorCode::kInvalid, 0, "header", "not a GGUF file: it begins with '{}'",
                        Printable({reinterpret_cast<const char*>(&magic), 4}));
  }
  TANDEM_ASSIGN(const uint32_t version, reader.Read<uint32_t>("version"));
  if (version != kVersion) {
    const bool swapped = __builtin_bswap32(version) <= kVersion;
    return reader.Wrong(ErrorCode::kUnsupported, 4, "version", "{}; only version {} is read",
                        swapped ? "a big-endian file" : fmt::format("version {}", version),
                        kVersion);
  }
  TANDEM_ASSIGN(*tensor_count, reader.Read<uint64_t>("number of tensors"));
  TANDEM_ASSIGN(const uint64_t key_count, reader.Read<uint64_t>("number of keys"));
  if (key_count > static_cast<uint64_t>(reader.left() / kSmallestKey)) {
    return reader.Wrong(ErrorCode::kInvalid, 16, "number of keys",
                        "{} do not fit into the file's {} bytes", key_count, reader.size());
  }
  if (*tensor_count > static_cast<uint64_t>(reader.left() / kSmallestTensor)) {
    return reader.Wrong(ErrorCode::kInvalid, 8, "number of tensors",
                        "{} do not fit into the file's {} bytes", *tensor_count, reader.size());
  }
  return key_count;
}

Result<void> GgufFile::Contents::ReadKeys(Reader& reader, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    const int64_t start = reader.position();
    TANDEM_ASSIGN(const std::string_view key, reader.ReadString(fmt::format("name of key {}", i)));
    const std::string what = fmt::format("key '{}'", Printable(key));
    if (key.empty()) {
      return reader.Wrong(ErrorCode::kInvalid, start, what, "key {} has no name", i);
    }
    TANDEM_ASSIGN(const ValueType type, ReadValueType(reader, what));
    TANDEM_ASSIGN(const Value value, ReadValue(reader, type, what, 0));
    if (!values.emplace(key, value).second) {
      return reader.Wrong(ErrorCode::kInvalid, start, what, "the key is there twice");
    }
    keys.push_back(key);
  }
  return {};
}

Result<int64_t> GgufFile::Contents::Alignment(const Reader& reader) const {
  const auto it = values.find("general.alignment");
  if (it == values.end()) return kDefaultAlignment;
  int64_t alignment = 0;
  const bool is_integer =
      IsInteger(it->second.type) && LoadInteger(it->second.type, at(it->second.offset), &alignment);
  if (!is_integer || alignment < 8 || alignment > (1 << 30) || (alignment & (alignment - 1)) != 0) {
    return reader.Wrong(
        ErrorCode::kInvalid, it->second.offset, "key 'general.alignment'",
        "a power of two from 8 on is needed, not {}",
        is_integer ? std::to_string(alignment) : std::string(Name(it->second.type)));
  }
  return alignment;
}

Result<void> GgufFile::Contents::ReadTensors(Reader& reader, uint64_t count) {
  std::vector<TensorEntry> entries;
  for (uint64_t i = 0; i < count; ++i) {
    TANDEM_ASSIGN(TensorEntry entry, ReadTensorEntry(reader, i));
    if (!tensor_index.emplace(entry.name, entries.size()).second) {
      return reader.Wrong(ErrorCode::kInvalid, entry.entry_at,
                          fmt::format("tensor '{}'", Printable(entry.name)),
                          "the tensor is there twice");
    }
    entries.push_back(std::move(entry));
  }
  TANDEM_ASSIGN(const int64_t alignment, Alignment(reader));
  const int64_t data_start = (reader.position() + alignment - 1) / alignment * alignment;
  return PlaceTensors(reader, data_start, alignment, std::move(entries));
}

Result<void> GgufFile::Contents::PlaceTensors(const Reader& reader, int64_t data_start,
                                              int64_t alignment, std::vector<TensorEntry> entries) {
  for (const TensorEntry& entry : entries) {
    const std::string what = fmt::format("tensor '{}'", Printable(entry.name));
    if (entry.offset % alignment != 0) {
      return reader.Wrong(ErrorCode::kInvalid, entry.entry_at, what,
                          "its offset {} is no multiple of the alignment {}", entry.offset,
                          alignment);
    }
    const int64_t room = std::max<int64_t>(reader.size() - data_start, 0);
    if (entry.offset > static_cast<uint64_t>(room) ||
        entry.bytes > room - static_cast<int64_t>(entry.offset)) {
      return reader.Wrong(ErrorCode::kInvalid, entry.entry_at, what,
                          "its {} bytes at offset {} of the data pass the end of the file, which "
                          "has {} bytes of data",
                          entry.bytes, entry.offset, room);
    }
    auto constant = std::make_shared<Constant>();
    constant->name = std::string(entry.name);
    constant->type = entry.type;
    constant->dims = entry.dims;
    // An empty tensor may lie behind the last byte of a file, which is no place in the mapping.
    constant->data = at(entry.bytes == 0 ? 0 : data_start + static_cast<int64_t>(entry.offset));
    constant->owner = mapped;
    constant->page_aligned_file = true;
    tensors.push_back(std::move(constant));
  }

  std::erase_if(entries, [](const TensorEntry& entry) { return entry.bytes == 0; });
  std::sort(entries.begin(), entries.end(),
            [](const TensorEntry& a, const TensorEntry& b) { return a.offset < b.offset; });
  for (size_t i = 1; i < entries.size(); ++i) {
    const TensorEntry& before = entries[i - 1];
    if (entries[i].offset < before.offset + static_cast<uint64_t>(before.bytes)) {
      return reader.Wrong(ErrorCode::kInvalid, entries[i].entry_at,
                          fmt::format("tensor '{}'", Printable(entries[i].name)),
                          "its bytes overlap those of tensor '{}'", Printable(before.name));
    }
  }
  return {};
}

GgufFile::GgufFile(std::unique_ptr<Contents> contents) : contents_(std::move(contents)) {}
GgufFile::~GgufFile() = default;

Result<std::shared_ptr<const GgufFile>> GgufFile::Open(const std::string& path) {
  auto contents = std::make_unique<Contents>();
  contents->path = path;
  TANDEM_ASSIGN(contents->mapped, MappedFile::Open(path));
  Reader reader(Printable(path), contents->mapped->bytes());
  uint64_t tensor_count = 0;
  TANDEM_ASSIGN(const uint64_t key_count, contents->ReadHeader(reader, &tensor_count));
  TANDEM_CHECK(contents->ReadKeys(reader, key_count));
  TANDEM_CHECK(contents->ReadTensors(reader, tensor_count));
  return std::shared_ptr<const GgufFile>(new GgufFile(std::move(contents)));
}

const std::string& GgufFile::path() const { return contents_->path; }
int64_t GgufFile::bytes() const { return static_cast<int64_t>(contents_->mapped->bytes().size()); }
bool GgufFile::Has(std::string_view key) const { return contents_->values.contains(key); }

Result<int64_t> GgufFile::Integer(std::string_view key) const {
  TANDEM_ASSIGN(const Value* value, contents_->Find(key));
  if (!IsInteger(value->type)) return contents_->WrongType(key, *value, "an integer");
  int64_t number = 0;
  if (!LoadInteger(value->type, contents_->at(value->offset), &number)) {
    return Fail(ErrorCode::kInvalid, "{}: at byte {}: key '{}': {} is too large", Printable(path()),
                value->offset, Printable(key), static_cast<uint64_t>(number));
  }
  return number;
}

Result<double> GgufFile::Real(std::string_view key) const {
  TANDEM_ASSIGN(const Value* value, contents_->Find(key));
  const std::byte* data = contents_->at(value->offset);
  if (value->type == ValueType::kF32) return static_cast<double>(Load<float>(data));
  if (value->type == ValueType::kF64) return Load<double>(data);
  if (!IsInteger(value->type)) return contents_->WrongType(key, *value, "a number");
  TANDEM_ASSIGN(const int64_t number, Integer(key));
  return static_cast<double>(number);
}

Result<bool> GgufFile::Boolean(std::string_view key) const {
  TANDEM_ASSIGN(const Value* value, contents_->Find(key));
  if (value->type != ValueType::kBool) return contents_->WrongType(key, *value, "a boolean");
  return Load<uint8_t>(contents_->at(value->offset)) == 1;
}

Result<std::string_view> GgufFile::String(std::string_view key) const {
  TANDEM_ASSIGN(const Value* value, contents_->Find(key));
  if (value->type != ValueType::kString) return contents_->WrongType(key, *value, "a string");
  return contents_->StringAt(value->offset);
}

Result<std::vector<std::string_view>> GgufFile::Strings(std::string_view key) const {
  TANDEM_ASSIGN(const Value* value, contents_->Find(key));
  if (value->type != ValueType::kArray || value->element != ValueType::kString) {
    return contents_->WrongType(key, *value, "an array of strings");
  }
  std::vector<std::string_view> strings;
  strings.reserve(value->count);
  int64_t offset = value->offset;
  for (int64_t i = 0; i < value->count; ++i) {
    strings.push_back(contents_->StringAt(offset));
    offset += 8 + static_cast<int64_t>(strings.back().size());
  }
  return strings;
}

Result<std::vector<int64_t>> GgufFile::Integers(std::string_view key) const {
  TANDEM_ASSIGN(const Value* value, contents_->Find(key));
  if (value->type != ValueType::kArray || !IsInteger(value->element)) {
    return contents_->WrongType(key, *value, "an array of integers");
  }
  std::vector<int64_t> numbers(value->count);
  const int64_t step = SmallestBytes(value->element);
  for (int64_t i = 0; i < value->count; ++i) {
    const int64_t at = value->offset + i * step;
    if (!LoadInteger(value->element, contents_->at(at), &numbers[i])) {
      return Fail(ErrorCode::kInvalid, "{}: at byte {}: key '{}': element {} is too large",
                  Printable(path()), at, Printable(key), i);
    }
  }
  return numbers;
}

std::vector<std::string_view> GgufFile::Keys() const { return contents_->keys; }
std::span<const std::shared_ptr<const Constant>> GgufFile::tensors() const {
  return contents_->tensors;
}

std::shared_ptr<const Constant> GgufFile::Tensor(std::string_view name) const {
  const auto it = contents_->tensor_index.find(name);
  return it == contents_->tensor_index.end() ? nullptr : contents_->tensors[it->second];
}

}  // namespace tandem
