// What the tests of the C header share. They see the installed header and the shared library, nothing else of
// the tree.
#pragma once

#include <fourfold/fourfold_kernels.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace doors {

inline ::testing::AssertionResult succeeds(fourfold_status status) {
  if (status == FOURFOLD_OK) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << fourfold_status_name(status) << ": " << fourfold_kernels_last_error();
}

// The status is as wanted and the sentence holds every one of the words.
inline ::testing::AssertionResult refuses(fourfold_status status, fourfold_status wanted,
                                          const std::vector<std::string>& words) {
  const std::string text = fourfold_kernels_last_error();
  if (status != wanted)
    return ::testing::AssertionFailure() << "got " << fourfold_status_name(status) << ", wanted "
                                         << fourfold_status_name(wanted) << "; the message is: " << text;
  for (const std::string& word : words)
    if (text.find(word) == std::string::npos)
      return ::testing::AssertionFailure() << "'" << word << "' is not in: " << text;
  return ::testing::AssertionSuccess();
}

inline fourfold_context* open_context(const char* device, std::uint64_t memory_bytes = 0) {
  auto options = FOURFOLD_INIT(fourfold_context_options);
  options.device = device;
  options.simulator_memory_bytes = memory_bytes;
  fourfold_context* context = nullptr;
  EXPECT_TRUE(succeeds(fourfold_context_open(&options, &context)));
  return context;
}

class Context {
 public:
  explicit Context(const char* device, std::uint64_t memory_bytes = 0)
      : handle_(open_context(device, memory_bytes)) {}
  ~Context() { fourfold_context_close(handle_); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  operator fourfold_context*() const { return handle_; }

  void* allocate(std::size_t bytes) {
    void* memory = nullptr;
    EXPECT_TRUE(succeeds(fourfold_allocate(handle_, bytes, &memory)));
    return memory;
  }
  template <class T>
  T* upload(const std::vector<T>& values) {
    void* const memory = allocate(values.size() * sizeof(T));
    EXPECT_TRUE(succeeds(fourfold_copy_to_device(handle_, memory, values.data(), values.size() * sizeof(T))));
    return static_cast<T*>(memory);
  }
  template <class T>
  std::vector<T> download(const void* memory, std::size_t count) {
    std::vector<T> values(count);
    EXPECT_TRUE(succeeds(fourfold_copy_from_device(handle_, values.data(), memory, count * sizeof(T))));
    return values;
  }

 private:
  fourfold_context* handle_;
};

// A layer small enough for the simulator, with its weights on a context.
struct SmallLayer {
  static constexpr int hidden = 128, inner = 64, experts = 4, top_k = 2;
  fourfold_format format = FOURFOLD_NVFP4;
  fourfold_activations activations = FOURFOLD_W4A16;
  std::mt19937 random{11};

  std::vector<std::uint8_t> bytes(std::size_t count, int low, int high) {
    std::vector<std::uint8_t> values(count);
    for (auto& value : values)
      value = static_cast<std::uint8_t>(low + static_cast<int>(random() % static_cast<unsigned>(high - low)));
    return values;
  }
  std::vector<std::uint8_t> scales(int rows, int columns) {
    const auto count = static_cast<std::size_t>(rows * columns);
    return format == FOURFOLD_NVFP4 ? bytes(count / 16, 0x28, 0x50) : bytes(count / 32, 120, 130);
  }
  std::vector<float> floats(std::size_t count, float low, float high) {
    std::vector<float> values(count);
    for (auto& value : values) value = std::uniform_real_distribution<float>(low, high)(random);
    return values;
  }
  std::vector<std::uint16_t> tokens(int count) {
    std::vector<std::uint16_t> values;
    for (const float value : floats(static_cast<std::size_t>(count * hidden), -1.0f, 1.0f)) {
      std::uint32_t bits;
      std::memcpy(&bits, &value, sizeof bits);
      values.push_back(static_cast<std::uint16_t>(bits >> 16));
    }
    return values;
  }

  fourfold_layer_options options(fourfold_role role, int tokens_most) const {
    auto options = FOURFOLD_INIT(fourfold_layer_options);
    options.hidden = hidden;
    options.intermediate = inner;
    options.experts = experts;
    options.top_k = top_k;
    options.tokens = tokens_most;
    options.format = format;
    options.activations = activations;
    options.role = role;
    return options;
  }
  fourfold_pack_options pack_options(fourfold_row_order order, int rows, int columns) const {
    auto options = FOURFOLD_INIT(fourfold_pack_options);
    options.format = format;
    options.activations = activations;
    options.row_order = order;
    options.rows = rows;
    options.columns = columns;
    return options;
  }
  std::vector<std::uint8_t> packed(fourfold_row_order order, int rows, int columns) {
    auto options = pack_options(order, rows, columns);
    const auto half = static_cast<std::size_t>(rows * columns / 2);
    const auto codes = bytes(half, 0, 256), block_scales = scales(rows, columns);
    const auto up_codes = bytes(half, 0, 256), up_scales = scales(rows, columns);
    options.codes = codes.data();
    options.scales = block_scales.data();
    options.up_codes = order == FOURFOLD_GATE_UP ? up_codes.data() : nullptr;
    options.up_scales = order == FOURFOLD_GATE_UP ? up_scales.data() : nullptr;
    std::size_t size = 0;
    EXPECT_TRUE(succeeds(fourfold_packed_bytes(&options, &size)));
    std::vector<std::uint8_t> records(size);
    EXPECT_TRUE(succeeds(fourfold_pack_host(&options, records.data(), size)));
    return records;
  }
  std::vector<std::uint8_t> all_experts(fourfold_row_order order, int rows, int columns) {
    std::vector<std::uint8_t> all;
    for (int e = 0; e < experts; ++e) {
      const auto one = packed(order, rows, columns);
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }
  fourfold_layer_weights weights(Context& context) {
    auto weights = FOURFOLD_INIT(fourfold_layer_weights);
    weights.gate_up = context.upload(all_experts(FOURFOLD_GATE_UP, inner, hidden));
    weights.down = context.upload(all_experts(FOURFOLD_PLAIN, hidden, inner));
    weights.gate_scale = context.upload(floats(experts, 0.01f, 0.04f));
    weights.up_scale = context.upload(floats(experts, 0.01f, 0.04f));
    weights.down_scale = context.upload(floats(experts, 0.01f, 0.04f));
    if (activations == FOURFOLD_W4A4) {
      float scale = 0.0f, inverse = 0.0f;
      EXPECT_TRUE(succeeds(fourfold_input_scale(FOURFOLD_MODELOPT, 0.002f, &scale, &inverse)));
      weights.gate_up_input_scale = weights.down_input_scale =
          context.upload(std::vector<float>(experts, scale));
      weights.gate_up_input_inverse = weights.down_input_inverse =
          context.upload(std::vector<float>(experts, inverse));
    }
    return weights;
  }
};

}  // namespace doors
