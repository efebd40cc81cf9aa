#include "doctor/log_reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "doctor/log_lines.h"
#include "doctor/word_search.h"

namespace fourfold::doctor {
namespace {

constexpr std::size_t kBlockBytes = 1 << 20;

// The first number at or after `at`: "acceptance length:   2.31", "num_speculative_tokens': 3".
std::optional<double> number_after(std::string_view line, std::size_t at) {
  // A few signs may stand between; a letter means that this is another sentence.
  while (at < line.size() && std::isdigit(static_cast<unsigned char>(line[at])) == 0) {
    if (std::isalpha(static_cast<unsigned char>(line[at])) != 0) return std::nullopt;
    ++at;
  }
  double number = 0;
  const auto [end, error] = std::from_chars(line.data() + at, line.data() + line.size(), number);
  return error == std::errc() ? std::optional(number) : std::nullopt;
}

// 111.46 of "8.97 ms per token,   111.46 tokens per second".
std::optional<double> timing(std::string_view line, std::size_t at) {
  if (line.find("prompt eval time") != std::string_view::npos) return std::nullopt;
  return number_after(line, at);
}

class LogReader {
 public:
  LogReader() : search_(texts()) {
    for (const LogLine& line : kLogLines)
      if (line.kind == LineKind::count || line.kind == LineKind::smem_bytes) facts_.set(name(line), 0);
    facts_.set("log.marlin", 0);
  }

  // Whole lines: nothing that matters may be cut in two.
  void read(std::string_view text) {
    bytes_ += static_cast<double>(text.size());
    lines_ += static_cast<double>(std::count(text.begin(), text.end(), '\n'));
    search_.run(text, [&](int which, std::size_t end) {
      const auto before = text.rfind('\n', end - 1);
      const std::size_t begin = before == std::string_view::npos ? 0 : before + 1;
      const std::string_view line = text.substr(begin, text.find('\n', end) - begin);
      take(kLogLines[static_cast<std::size_t>(which)], line, end - begin);
    });
  }

  void finish(Facts& facts) {
    facts_.set("log.given", true);
    facts_.set("log.bytes", bytes_);
    facts_.set("log.lines", lines_);
    for (const auto& [key, value] : facts_.all()) facts.set_value(key, value);
  }

 private:
  static std::vector<std::string_view> texts() {
    std::vector<std::string_view> all;
    for (const LogLine& line : kLogLines) all.push_back(line.text);
    return all;
  }
  static std::string name(const LogLine& line) { return "log." + std::string(line.fact); }
  void count(const std::string& fact) { facts_.set(fact, facts_.number_or(fact, 0) + 1); }

  void take(const LogLine& known, std::string_view line, std::size_t end) {
    if (!known.also.empty() && line.find(known.also) == std::string_view::npos) return;
    std::optional<double> number;
    switch (known.kind) {
      case LineKind::count: return count(name(known));
      case LineKind::backend: return take_backend(line);
      case LineKind::quoted: return name_backend(std::string(line.substr(end, line.find('\'', end) - end)));
      case LineKind::smem_bytes: return take_bytes(known, line);
      case LineKind::timing: number = timing(line, end); break;
      default: number = number_after(line, end);
    }
    if (!number) return;
    if (known.kind != LineKind::number) number = std::max(*number, facts_.number_or(name(known), 0));
    facts_.set(name(known), *number);
  }

  // Using 'MARLIN' NvFp4 MoE backend out of potential backends: [...]
  void take_backend(std::string_view line) {
    const auto using_at = line.find("Using ");
    const auto end = line.find(" NvFp4 MoE backend", using_at);
    if (end == std::string_view::npos) return;
    std::string backend(line.substr(using_at + 6, end - using_at - 6));
    std::erase(backend, '\'');
    name_backend(backend);
  }

  void name_backend(const std::string& backend) {
    if (backend == "auto") return;  // a wish, not a choice
    facts_.set("log.kernel", backend);
    if (backend.find("MARLIN") != std::string::npos || backend.find("marlin") != std::string::npos)
      count("log.marlin");
  }

  void take_bytes(const LogLine& known, std::string_view line) {
    count(name(known));
    const auto at = line.find("Allocated:");
    if (at == std::string_view::npos) return;
    if (const auto bytes = number_after(line, at + 10)) facts_.set(name(known) + "_bytes", *bytes);
  }

  WordSearch search_;
  Facts facts_;
  double bytes_ = 0, lines_ = 0;
};

// Reads what there is; end of file is nothing.
std::size_t read_block(int file, char* into, std::size_t bytes, const std::string& path) {
  for (;;) {
    const ssize_t got = read(file, into, bytes);
    if (got >= 0) return static_cast<std::size_t>(got);
    if (errno != EINTR) fail(Code::io, "the log {} cannot be read: {}", path, std::strerror(errno));
  }
}

}  // namespace

void read_log_text(std::string_view text, Facts& facts) {
  LogReader reader;
  reader.read(text);
  reader.finish(facts);
}

void read_log(const std::string& path, Facts& facts) {
  const int file = path == "-" ? dup(STDIN_FILENO) : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) fail(Code::io, "the log {} cannot be read: {}", path, std::strerror(errno));
  LogReader reader;
  std::string block(2 * kBlockBytes, '\0');
  std::size_t kept = 0;  // bytes of a line that is not complete yet
  while (const std::size_t got = read_block(file, block.data() + kept, block.size() - kept, path)) {
    const std::string_view text(block.data(), kept + got);
    const auto last = text.rfind('\n');
    // A line longer than the block is read as it is: cut in two, but not lost.
    const std::size_t whole = last != std::string_view::npos ? last + 1
                              : text.size() < block.size()   ? 0
                                                             : text.size();
    reader.read(text.substr(0, whole));
    kept = text.size() - whole;
    std::memmove(block.data(), block.data() + whole, kept);
  }
  reader.read(std::string_view(block.data(), kept));
  close(file);
  reader.finish(facts);
}

}  // namespace fourfold::doctor
