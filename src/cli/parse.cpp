#include "cli/parse.h"

#include <charconv>
#include <cstdint>
#include <system_error>

#include "base/error.h"

namespace fourfold::cli {

std::vector<std::string> split_commas(std::string_view text) {
  std::vector<std::string> parts;
  while (true) {
    const std::size_t comma = text.find(',');
    parts.emplace_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

std::string shell_word(std::string_view text) {
  const bool plain = text.find_first_not_of(
                         "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                         "%+,-./:=@_") == std::string_view::npos;
  if (plain && !text.empty()) return std::string(text);
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string why_no_seed(const std::string& text) {
  const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  if (!digits || (text.size() > 1 && text[0] == '0'))
    return fourfold::format("'{}' is no whole number from 0 on, in decimal digits with no 0 in front", text);
  std::uint64_t value = 0;
  const std::errc status = std::from_chars(text.data(), text.data() + text.size(), value).ec;
  return status == std::errc{} ? "" : text + " is beyond 64 bits";
}

std::vector<const plan::ArchFacts*> parse_archs(std::string_view text) {
  std::vector<const plan::ArchFacts*> archs;
  for (const std::string& name : split_commas(text)) {
    const plan::ArchFacts* arch = plan::find_arch(name);
    if (arch == nullptr)
      fail_with_hint(Code::invalid_request, fourfold::format("Known architectures: {}.", plan::arch_names()),
                     "unknown architecture '{}'", name);
    archs.push_back(arch);
  }
  return archs;
}

std::vector<int> parse_tokens(std::string_view text) {
  std::vector<int> counts;
  for (const std::string& part : split_commas(text)) {
    int value = 0;
    const auto [end, status] = std::from_chars(part.data(), part.data() + part.size(), value);
    if (status != std::errc{} || end != part.data() + part.size() || value < 0)
      fail_with_hint(Code::invalid_request,
                     "Token counts are whole numbers with commas between them: 1,4,64.",
                     "'{}' is not a token count", part);
    counts.push_back(value);
  }
  return counts;
}

std::vector<int> parse_counts(std::string_view text, std::string_view option, int least, int most) {
  std::vector<int> counts;
  for (const std::string& part : split_commas(text)) {
    int value = 0;
    const auto [end, status] = std::from_chars(part.data(), part.data() + part.size(), value);
    const std::string_view rest(end, static_cast<std::size_t>(part.data() + part.size() - end));
    if (status != std::errc{} || (!rest.empty() && rest != "k") || value > most / (rest.empty() ? 1 : 1024))
      fail(Code::invalid_request, "{}: '{}' is not a number from {} to {}; 4k is 4096", option, part, least,
           most);
    if (!rest.empty()) value *= 1024;
    if (value < least)
      fail(Code::invalid_request, "{}: '{}' is not a number from {} to {}; 4k is 4096", option, part, least,
           most);
    counts.push_back(value);
  }
  if (counts.empty()) fail(Code::invalid_request, "{} is empty", option);
  return counts;
}

moe_layer::Activations parse_activations(std::string_view text) {
  if (text == "w4a16") return moe_layer::Activations::w4a16;
  if (text == "w4a4") return moe_layer::Activations::w4a4;
  fail_with_hint(Code::invalid_request, "Known activations: w4a16, w4a4.", "unknown activations '{}'", text);
}

WeightFormat parse_format(std::string_view text) {
  if (text == "nvfp4") return WeightFormat::nvfp4;
  if (text == "mxfp4") return WeightFormat::mxfp4;
  fail_with_hint(Code::invalid_request, "Known formats: nvfp4, mxfp4.", "unknown format '{}'", text);
}

moe_layer::Shape parse_layer_shape(const std::string& text) {
  const moe_layer::Shape shape = moe_layer::parse_shape(text);
  moe_layer::require_shape({.shape = shape});
  return shape;
}

}  // namespace fourfold::cli
