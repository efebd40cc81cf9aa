#include "doctor/source.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>

#include "base/format.h"

namespace fourfold::doctor {
namespace {

constexpr std::string_view kPrefixes[]{"NCCL_",    "CUDA_",       "VLLM_",        "SGLANG_",
                                       "PYTORCH_", "TORCH_CUDA_", "FLASHINFER_",  "GGML_CUDA_",
                                       "OMP_",     "NVIDIA_",     "SAFETENSORS_", "B12X_"};
constexpr std::string_view kSecrets[]{"KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL"};

constexpr std::string_view kServers[]{"vllm",         "sglang",   "trtllm-serve",
                                      "llama-server", "tabbyAPI", "fourfold"};
// Options that decide which kernels run and on how many GPUs, all with one value.
constexpr std::string_view kServerOptions[]{"--moe-backend",   "--tensor-parallel-size", "-tp",
                                            "--tp-size",       "--moe-runner-backend",   "--quantization",
                                            "--kv-cache-dtype"};

// PCI Express: extended capabilities begin here, each a word of id, version and the next one's place.
constexpr std::size_t kExtendedConfig = 0x100;
constexpr unsigned kAcsCapability = 0x000D;
constexpr std::size_t kAcsControlOffset = 6;

std::uint32_t word_at(const std::string& bytes, std::size_t at) {
  std::uint32_t word = 0;
  std::memcpy(&word, bytes.data() + at, sizeof word);
  return word;
}

}  // namespace

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const auto end = std::min(text.find(separator), text.size());
    parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

std::string trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1));
}

std::optional<std::string> field_of(std::string_view text, std::string_view key) {
  for (const std::string& line : split(text, '\n')) {
    const auto colon = line.find(':');
    if (colon != std::string::npos && trimmed(std::string_view(line).substr(0, colon)) == key)
      return trimmed(std::string_view(line).substr(colon + 1));
  }
  return std::nullopt;
}

std::optional<double> parse_number(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::string Source::text(const std::string& question) { return trimmed(ask(question).value_or("")); }

std::optional<double> Source::number(const std::string& question) { return parse_number(text(question)); }

std::vector<std::string> Source::lines(const std::string& question) {
  return split(ask(question).value_or(""), '\n');
}

bool is_known_variable(const std::string& name) {
  for (const std::string_view secret : kSecrets)
    if (name.find(secret) != std::string::npos) return false;
  if (name == "LD_LIBRARY_PATH") return true;
  return std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

std::optional<std::string> acs_control(const std::string& config) {
  std::size_t at = kExtendedConfig;
  // 960 capabilities of four bytes would fill the space; a chain that is longer runs in a circle.
  for (int steps = 0; steps < 960 && at >= kExtendedConfig && at + 8 <= config.size(); ++steps) {
    const std::uint32_t head = word_at(config, at);
    if (head == 0 || head == ~0u) return std::nullopt;
    if ((head & 0xFFFF) == kAcsCapability) {
      const std::uint32_t control = word_at(config, at + kAcsControlOffset - 2) >> 16;
      constexpr char digits[] = "0123456789abcdef";
      std::string text;
      for (int shift = 12; shift >= 0; shift -= 4) text += digits[(control >> shift) & 15];
      return text;
    }
    at = head >> 20;
  }
  return std::nullopt;
}

std::optional<std::string> server_line(const std::vector<std::string>& arguments) {
  // The program is one of the first words: "python -m vllm...", "/usr/bin/vllm serve".
  std::string line;
  for (std::size_t i = 0; i < std::min<std::size_t>(arguments.size(), 4) && line.empty(); ++i)
    for (const std::string_view server : kServers) {
      const std::string name = arguments[i].substr(arguments[i].rfind('/') + 1);
      if (name == server || name.starts_with(std::string(server) + ".")) line = server;
    }
  if (line.empty()) return std::nullopt;
  for (std::size_t i = 1; i < arguments.size(); ++i)
    for (const std::string_view option : kServerOptions) {
      if (arguments[i] == option && i + 1 < arguments.size())
        line += fourfold::format(" {} {}", option, arguments[i + 1]);
      else if (arguments[i].starts_with(std::string(option) + "="))
        line += fourfold::format(" {} {}", option, arguments[i].substr(option.size() + 1));
    }
  return line;
}

}  // namespace fourfold::doctor
