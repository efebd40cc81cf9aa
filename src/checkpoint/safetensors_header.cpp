// The header of a safetensors file: a JSON reader that accepts this one structure and nothing else, so that
// hostile headers cost no more memory than the tensors they name, then the arithmetic over what they claim.
#include <algorithm>
#include <boost/json/basic_parser_impl.hpp>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "checkpoint/safetensors.h"

namespace fourfold::checkpoint {
namespace {

namespace bj = boost::json;
using boost::system::error_code;

// Names are printed in messages and compared with ours; real ones have about a hundred bytes.
constexpr std::size_t kNameBytesMax = 4096;

class HeaderReader {
 public:
  static constexpr std::size_t max_object_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_array_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_key_size = kNameBytesMax;
  static constexpr std::size_t max_string_size = static_cast<std::size_t>(-1);

  explicit HeaderReader(std::string_view what) : what_(what) {}
  std::vector<TensorEntry>& tensors() { return tensors_; }

  bool on_document_begin(error_code&) { return true; }
  bool on_document_end(error_code&) { return true; }

  bool on_object_begin(error_code&) {
    switch (place_) {
      case Place::start: place_ = Place::names; return true;
      case Place::tensor_value:
        place_ = key_ == "__metadata__" ? Place::metadata : Place::fields;
        if (place_ == Place::fields)
          start_tensor();
        else if (std::exchange(metadata_seen_, true))
          refuse("the header has \"__metadata__\" twice");
        return true;
      default: refuse_value("an object");
    }
  }

  bool on_object_end(std::size_t, error_code&) {
    if (place_ == Place::fields) finish_tensor();
    place_ = place_ == Place::names ? Place::end : Place::names;
    return true;
  }

  bool on_array_begin(error_code&) {
    if (place_ == Place::field_value && field_ == Field::shape)
      place_ = Place::shape;
    else if (place_ == Place::field_value && field_ == Field::offsets)
      place_ = Place::offsets;
    else
      refuse_value("an array");
    return true;
  }

  bool on_array_end(std::size_t, error_code&) {
    if (place_ == Place::offsets && offset_count_ != 2)
      refuse_tensor("has {} data_offsets; begin and end are needed", offset_count_);
    place_ = Place::fields;
    return true;
  }

  bool on_key_part(bj::string_view part, std::size_t, error_code&) {
    partial_.append(part.data(), part.size());
    return true;
  }

  bool on_key(bj::string_view part, std::size_t, error_code&) {
    partial_.append(part.data(), part.size());
    key_ = std::exchange(partial_, {});
    if (place_ == Place::names)
      place_ = Place::tensor_value;
    else if (place_ == Place::fields)
      start_field();
    else
      place_ = Place::metadata_value;
    return true;
  }

  bool on_string_part(bj::string_view part, std::size_t, error_code&) {
    if (partial_.size() + part.size() <= kNameBytesMax) partial_.append(part.data(), part.size());
    return true;
  }

  bool on_string(bj::string_view part, std::size_t, error_code& code) {
    on_string_part(part, 0, code);
    const std::string text = std::exchange(partial_, {});
    if (place_ == Place::metadata_value) {
      place_ = Place::metadata;  // free text for people; nothing in it is ours to obey
    } else if (place_ == Place::field_value && field_ == Field::dtype) {
      const auto dtype = dtype_from_name(text);
      if (!dtype) refuse_tensor("has the unknown element type \"{}\"", text.substr(0, 40));
      tensor().dtype = *dtype;
      place_ = Place::fields;
    } else {
      refuse_value("a string");
    }
    return true;
  }

  bool on_int64(std::int64_t value, bj::string_view, error_code&) {
    if (place_ == Place::shape) {
      if (value < 0) refuse_tensor("has the negative size {} in its shape", value);
      if (tensor().shape.full()) refuse_tensor("has more than {} dimensions", Shape::kRankMax);
      tensor().shape.push(value);
    } else if (place_ == Place::offsets) {
      if (value < 0) refuse_tensor("has the negative data offset {}", value);
      if (++offset_count_ == 1) tensor().begin = static_cast<std::uint64_t>(value);
      if (offset_count_ == 2) tensor().end = static_cast<std::uint64_t>(value);
    } else {
      refuse_value("a number");
    }
    return true;
  }

  // Boost hands over as unsigned only what exceeds the signed range, which is beyond any file.
  bool on_uint64(std::uint64_t value, bj::string_view, error_code&) {
    if (place_ != Place::shape && place_ != Place::offsets) refuse_value("a number");
    refuse_tensor("has the number {}, which is beyond any file", value);
  }
  bool on_double(double value, bj::string_view, error_code&) {
    if (place_ != Place::shape && place_ != Place::offsets) refuse_value("a number");
    refuse_tensor("has the number {}; sizes and offsets are whole and below 2^63", value);
  }
  bool on_number_part(bj::string_view, error_code&) { return true; }
  bool on_bool(bool, error_code&) { refuse_value("a truth value"); }
  bool on_null(error_code&) { refuse_value("null"); }
  bool on_comment_part(bj::string_view, error_code&) { return true; }
  bool on_comment(bj::string_view, error_code&) { return true; }

 private:
  // Where the next JSON item stands.
  enum class Place {
    start,
    names,
    tensor_value,
    fields,
    field_value,
    shape,
    offsets,
    metadata,
    metadata_value,
    end
  };
  enum class Field { dtype, shape, offsets };

  TensorEntry& tensor() { return tensors_.back(); }

  void start_tensor() {
    tensors_.emplace_back();
    tensor().name = key_;
    seen_[0] = seen_[1] = seen_[2] = false;
    offset_count_ = 0;
  }

  void start_field() {
    if (key_ == "dtype")
      field_ = Field::dtype;
    else if (key_ == "shape")
      field_ = Field::shape;
    else if (key_ == "data_offsets")
      field_ = Field::offsets;
    else
      refuse_tensor("has the unknown field \"{}\"", key_.substr(0, 40));
    if (std::exchange(seen_[static_cast<int>(field_)], true))
      refuse_tensor("has the field \"{}\" twice", key_);
    place_ = Place::field_value;
  }

  void finish_tensor() {
    constexpr const char* names[] = {"dtype", "shape", "data_offsets"};
    for (int i = 0; i < 3; ++i)
      if (!seen_[i]) refuse_tensor("lacks the field \"{}\"", names[i]);
  }

  template <class... Args>
  [[noreturn]] void refuse(std::string_view pattern, const Args&... args) const {
    throw Error(Code::bad_checkpoint, std::string(what_) + ": " + fourfold::format(pattern, args...));
  }

  template <class... Args>
  [[noreturn]] void refuse_tensor(std::string_view pattern, const Args&... args) {
    refuse("tensor {} {}", tensor().name, fourfold::format(pattern, args...));
  }

  [[noreturn]] void refuse_value(std::string_view kind) const {
    if (place_ == Place::start) refuse("the header is {}; it must be an object of tensors", kind);
    refuse("the header has {} where \"{}\" cannot have one", kind, key_.substr(0, 200));
  }

  std::string_view what_;
  std::vector<TensorEntry> tensors_;
  Place place_ = Place::start;
  Field field_ = Field::dtype;
  std::string key_;
  std::string partial_;
  bool seen_[3] = {};
  bool metadata_seen_ = false;
  int offset_count_ = 0;
};

std::vector<TensorEntry> read_entries(std::string_view json, std::string_view what) {
  bj::parse_options options;
  options.max_depth = 4;  // header, tensor, shape: three
  bj::basic_parser<HeaderReader> parser(options, what);
  error_code code;
  const std::size_t read = parser.write_some(false, json.data(), json.size(), code);
  if (code)
    fail(Code::bad_checkpoint, "{}: the header is not valid JSON at byte {} of {}: {}", what, read,
         json.size(), code.message());
  const std::size_t rest = json.find_first_not_of(" \t\r\n", read);
  if (rest != std::string_view::npos)
    fail(Code::bad_checkpoint, "{}: the header has text after its JSON object, at byte {} of {}", what, rest,
         json.size());
  return std::move(parser.handler().tensors());
}

// Throws unless shape times type is exactly the bytes the offsets give.
void require_size(const TensorEntry& tensor, std::string_view what) {
  if (tensor.begin > tensor.end)
    fail(Code::bad_checkpoint, "{}: tensor {} begins at {} and ends before it at {}", what, tensor.name,
         tensor.begin, tensor.end);
  std::uint64_t bits = static_cast<std::uint64_t>(dtype_bits(tensor.dtype));
  bool overflow = false;
  // A zero anywhere makes the tensor empty however large the other sizes are, but no honest file has such
  // sizes.
  for (const std::int64_t size : tensor.shape.sizes())
    overflow = overflow || __builtin_mul_overflow(bits, static_cast<std::uint64_t>(size), &bits);
  if (overflow)
    fail(Code::bad_checkpoint, "{}: tensor {} of {} {} has more bytes than 64 bits can count", what,
         tensor.name, dtype_name(tensor.dtype), to_string(tensor.shape));
  if (bits % 8 != 0)
    fail(Code::bad_checkpoint, "{}: tensor {} of {} {} has {} bits, which is no whole number of bytes", what,
         tensor.name, dtype_name(tensor.dtype), to_string(tensor.shape), bits);
  if (tensor.end - tensor.begin != bits / 8)
    fail(Code::bad_checkpoint, "{}: tensor {} of {} {} needs {} bytes; its offsets {}..{} give {}", what,
         tensor.name, dtype_name(tensor.dtype), to_string(tensor.shape), bits / 8, tensor.begin, tensor.end,
         tensor.end - tensor.begin);
}

void require_unique_names(const std::vector<TensorEntry>& tensors, std::string_view what) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const TensorEntry& tensor : tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) fail(Code::bad_checkpoint, "{}: the header has tensor {} twice", what, *twice);
}

// Sorted by offset the tensors must tile the data exactly: no byte of the file is unnamed, none belongs to
// two.
void require_tiling(const std::vector<TensorEntry>& tensors, std::uint64_t data_bytes,
                    std::string_view what) {
  std::uint64_t covered = 0;
  std::string_view before = "the header";
  for (const TensorEntry& tensor : tensors) {
    if (tensor.begin < covered)
      fail(Code::bad_checkpoint, "{}: tensor {} begins at {} inside {}, which ends at {}", what, tensor.name,
           tensor.begin, before, covered);
    if (tensor.begin > covered)
      fail(Code::bad_checkpoint, "{}: {} bytes between {} and tensor {} belong to no tensor", what,
           tensor.begin - covered, before, tensor.name);
    covered = tensor.end;
    before = tensor.name;
  }
  if (covered > data_bytes)
    fail_with_hint(Code::bad_checkpoint, "the file is truncated; download it again",
                   "{}: the tensors need {} bytes after the header; the file has {}", what, covered,
                   data_bytes);
  if (covered < data_bytes)
    fail(Code::bad_checkpoint, "{}: {} bytes after the last tensor belong to no tensor", what,
         data_bytes - covered);
}

}  // namespace

std::uint64_t header_bytes(std::span<const std::byte> start) {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < kHeaderLengthBytes; ++i)
    bytes |= static_cast<std::uint64_t>(std::to_integer<std::uint8_t>(start[i])) << (8 * i);
  return bytes;
}

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> start, std::uint64_t file_bytes,
                                           std::string_view what) {
  constexpr std::uint64_t length_bytes = kHeaderLengthBytes;
  if (file_bytes < length_bytes || start.size() < length_bytes)
    fail_with_hint(Code::bad_checkpoint, "the file is truncated; download it again",
                   "{}: {} bytes; a safetensors file starts with 8 bytes of header length", what, file_bytes);
  const std::uint64_t bytes = header_bytes(start);
  if (bytes > kHeaderBytesMax)
    fail_with_hint(Code::bad_checkpoint, "this is no safetensors file, or it is damaged",
                   "{}: says that its header has {} bytes; the limit of the format is {}", what, bytes,
                   kHeaderBytesMax);
  if (bytes > file_bytes - length_bytes || bytes > start.size() - length_bytes)
    fail_with_hint(Code::bad_checkpoint, "the file is truncated; download it again",
                   "{}: says that its header has {} bytes; only {} follow", what, bytes,
                   file_bytes - length_bytes);
  const std::string_view json(reinterpret_cast<const char*>(start.data() + length_bytes), bytes);
  if (json.empty() || json.front() != '{')
    fail_with_hint(Code::bad_checkpoint, "this is no safetensors file, or it is damaged",
                   "{}: its header of {} bytes does not begin with '{'", what, bytes);

  SafetensorsHeader header{.data_begin = length_bytes + bytes, .tensors = read_entries(json, what)};
  for (const TensorEntry& tensor : header.tensors) require_size(tensor, what);
  require_unique_names(header.tensors, what);
  std::sort(header.tensors.begin(), header.tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end != b.end ? a.end < b.end : a.name < b.name;
  });
  require_tiling(header.tensors, file_bytes - header.data_begin, what);
  return header;
}

}  // namespace fourfold::checkpoint
