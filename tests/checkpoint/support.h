// Small checkpoints made by tests: safetensors bytes, folders that vanish, and the one way to expect an
// Error.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bf16.h"
#include "base/error.h"
#include "base/json_writer.h"
#include "base/random.h"

namespace fourfold::checkpoint {

// The golden models, as the build has put them together.
inline std::filesystem::path golden_folder() { return FOURFOLD_GOLDEN; }
inline std::filesystem::path golden_model(const std::string& name) { return golden_folder() / name; }

// A folder that is removed with everything in it.
class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "fourfold-test-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder: " + pattern);
    path_ = pattern;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path write(const std::string& name, std::string_view text) const {
    const std::filesystem::path file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary).write(text.data(), static_cast<std::streamsize>(text.size()));
    return file;
  }

 private:
  std::filesystem::path path_;
};

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A header text and data as a file: the length in front.
inline std::string safetensors_file(std::string_view header, std::string_view data) {
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>(static_cast<std::uint64_t>(header.size()) >> (8 * i));
  file += header;
  file += data;
  return file;
}

struct TestTensor {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::string bytes;
};

inline std::string safetensors_file(const std::vector<TestTensor>& tensors) {
  JsonWriter json;
  json.begin_object();
  std::string data;
  for (const TestTensor& tensor : tensors) {
    json.key(tensor.name).begin_object().member("dtype", tensor.dtype).key("shape").begin_array();
    for (const std::int64_t size : tensor.shape) json.value(size);
    json.end_array()
        .key("data_offsets")
        .begin_array()
        .value(data.size())
        .value(data.size() + tensor.bytes.size());
    json.end_array().end_object();
    data += tensor.bytes;
  }
  std::string header = json.end_object().finish();
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return safetensors_file(header, data);
}

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// BF16 numbers of this shape, drawn from the name so that no two tensors are alike.
inline TestTensor random_bf16(std::string name, std::vector<std::int64_t> shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  Random random(std::hash<std::string>{}(name));
  std::vector<Bf16> values;
  for (std::int64_t i = 0; i < count; ++i)
    values.push_back(to_bf16(static_cast<float>(random.uniform(-1, 1))));
  return {std::move(name), "BF16", std::move(shape), bytes_of(values)};
}

// Runs it and expects an Error of this code whose message holds every part. Gives the hint.
inline std::string expect_error(Code code, const std::vector<std::string>& parts,
                                const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    EXPECT_EQ(code_name(error.code()), code_name(code)) << error.what();
    for (const std::string& part : parts)
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << "\"" << part << "\" is not in: " << error.what();
    return error.hint();
  }
  ADD_FAILURE() << "no Error; expected " << code_name(code)
                << (parts.empty() ? "" : " with " + parts.front());
  return {};
}

}  // namespace fourfold::checkpoint
