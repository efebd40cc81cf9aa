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

// A program that serves, or does so when this is its command, or when it is run as such a module.
struct ServerName {
  std::string_view program, command, module;
};
constexpr ServerName kServers[]{{"vllm", "serve", "vllm.entrypoints."},
                                {"sglang", "serve", "sglang.launch_server"},
                                {"trtllm-serve", "", ""},
                                {"llama-server", "", ""},
                                {"tabbyAPI", "", ""},
                                {"fourfold", "serve", ""}};
// Options that decide which kernels run and on how many GPUs, all with one value.
constexpr std::string_view kServerOptions[]{"--moe-backend",   "--tensor-parallel-size", "-tp",
                                            "--tp-size",       "--moe-runner-backend",   "--quantization",
                                            "--kv-cache-dtype"};

// PCI Express: extended capabilities begin here, each a word of id, version and the next one's offset.
constexpr std::size_t kExtendedConfig = 0x100;
constexpr unsigned kAcsCapability = 0x000D;
constexpr std::size_t kAcsControlOffset = 6;

std::uint32_t word_at(const std::string& bytes, std::size_t at) {
  std::uint32_t word = 0;
  std::memcpy(&word, bytes.data() + at, sizeof word);
  return word;
}

// Which of a process's arguments is the program that runs: the first, or what Python was given. Words behind
// it are left alone ("timeout 60 fourfold doctor", "ninja fourfold"), and what a wrapper starts is a
// process of its own.
std::optional<std::size_t> program_place(const std::vector<std::string>& arguments) {
  if (arguments.empty()) return std::nullopt;
  if (!arguments[0].substr(arguments[0].rfind('/') + 1).starts_with("python")) return 0;
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    if (arguments[i] == "-m") return i + 1 < arguments.size() ? std::optional(i + 1) : std::nullopt;
    if (arguments[i] == "-c") return std::nullopt;
    if (arguments[i] == "-X" || arguments[i] == "-W")
      ++i;
    else if (!arguments[i].starts_with('-'))
      return i;
  }
  return std::nullopt;
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
  const auto at = program_place(arguments);
  if (!at) return std::nullopt;
  const std::string name = arguments[*at].substr(arguments[*at].rfind('/') + 1);
  const auto word = std::find_if(arguments.begin() + static_cast<std::ptrdiff_t>(*at) + 1, arguments.end(),
                                 [](const std::string& argument) { return !argument.starts_with('-'); });
  const auto is_this = [&](const ServerName& server) {
    if (name == server.program)
      return server.command.empty() || (word != arguments.end() && *word == server.command);
    return !server.module.empty() && name.starts_with(server.module);
  };
  const auto* found = std::find_if(std::begin(kServers), std::end(kServers), is_this);
  if (found == std::end(kServers)) return std::nullopt;
  std::string line(found->program);
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
