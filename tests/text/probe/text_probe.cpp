// Holds the text room against its Python oracles: reads cases on stdin, writes our answers to stdout. Driven
// by tools/text/compare_with_python.py; not part of the test suite, which reads golden files.
//
//   text_probe encode TOKENIZER.json [special-as-text] [add-special]    frames of text -> frames of int32 ids
//   text_probe decode TOKENIZER.json [skip-special]                     frames of int32 ids -> frames of text
//   text_probe render       frames, by turns a template and its variables as JSON -> frames of "+" and text,
//   or "-" and the error text_probe speed TOKENIZER.json FILE                                MB/s of encode
//   and of decode
//
// A frame is a 32-bit length in bytes and the bytes.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/json_value.h"
#include "text/tokenizer.h"

namespace {

using fourfold::text::TokenId;
using fourfold::text::Tokenizer;

std::optional<std::string> read_frame() {
  std::uint32_t bytes = 0;
  if (std::fread(&bytes, sizeof bytes, 1, stdin) != 1) return std::nullopt;
  std::string frame(bytes, '\0');
  if (std::fread(frame.data(), 1, bytes, stdin) != bytes) return std::nullopt;
  return frame;
}

void write_frame(const void* data, std::size_t size) {
  const auto bytes = static_cast<std::uint32_t>(size);
  std::fwrite(&bytes, sizeof bytes, 1, stdout);
  std::fwrite(data, 1, size, stdout);
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void measure(const Tokenizer& tokenizer, const char* path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const double megabytes = static_cast<double>(text.size()) / 1e6;
  for (int round = 0; round < 5; ++round) {
    auto start = std::chrono::steady_clock::now();
    const auto ids = tokenizer.encode(text);
    const double encode_s = seconds_since(start);
    start = std::chrono::steady_clock::now();
    const std::string back = tokenizer.decode(ids);
    const double decode_s = seconds_since(start);
    std::printf("%.1f MB, %zu tokens: encode %.1f MB/s, decode %.1f MB/s, %s\n", megabytes, ids.size(),
                megabytes / encode_s, megabytes / decode_s, back == text ? "the same text" : "ANOTHER TEXT");
  }
}

// 2025-03-04 05:06:07, a Tuesday; the Python side shows the same to strftime_now.
std::tm fixed_now() {
  std::tm now{};
  now.tm_year = 125;
  now.tm_mon = 2;
  now.tm_mday = 4;
  now.tm_hour = 5;
  now.tm_min = 6;
  now.tm_sec = 7;
  now.tm_wday = 2;
  now.tm_yday = 62;
  return now;
}

void render_all() {
  namespace jinja = fourfold::text::jinja;
  while (const auto source = read_frame()) {
    const auto variables = read_frame();
    std::string answer;
    try {
      const jinja::Body body = jinja::parse_template(*source, "template");
      const jinja::Value values = jinja::parse_json(variables.value(), "variables");
      answer = "+" + jinja::Evaluator("template", {}, fixed_now()).render(body, *values.dict());
    } catch (const fourfold::Error& error) {
      answer = std::string("-") + error.what();
    }
    write_frame(answer.data(), answer.size());
  }
}

int run(const std::vector<std::string>& arguments) {
  if (arguments == std::vector<std::string>{"render"}) {
    render_all();
    return 0;
  }
  if (arguments.size() < 2) return 2;
  const std::set<std::string> flags(arguments.begin() + 2, arguments.end());
  const auto start = std::chrono::steady_clock::now();
  const Tokenizer tokenizer = Tokenizer::load(arguments[1]);
  if (arguments[0] == "speed" && arguments.size() == 3) {
    std::printf("loaded in %.0f ms\n", 1e3 * seconds_since(start));
    measure(tokenizer, arguments[2].c_str());
  } else if (arguments[0] == "encode") {
    const fourfold::text::EncodeOptions options{.add_special_tokens = flags.contains("add-special"),
                                                .special_as_text = flags.contains("special-as-text")};
    while (const auto text = read_frame()) {
      const auto ids = tokenizer.encode(*text, options);
      write_frame(ids.data(), ids.size() * sizeof(TokenId));
    }
  } else if (arguments[0] == "decode") {
    while (const auto frame = read_frame()) {
      std::vector<TokenId> ids(frame->size() / sizeof(TokenId));
      std::memcpy(ids.data(), frame->data(), ids.size() * sizeof(TokenId));
      const std::string text = tokenizer.decode(ids, {.skip_special = flags.contains("skip-special")});
      write_frame(text.data(), text.size());
    }
  } else {
    return 2;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const fourfold::Error& error) {
    std::fprintf(stderr, "text_probe: %s\n", error.what());
    return 1;
  }
}
