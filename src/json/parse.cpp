// JSON text to a value, with the checks Boost.JSON does not make: sizes and members of the same name.
#include "json/parse.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/parse.hpp>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <functional>
#include <unordered_set>
#include <vector>

#include "base/error.h"
#include "base/seeded_hash.h"

namespace fourfold::json {
namespace {

namespace bj = boost::json;

// Sees every member name of the document and stops at the first that its object already has. A pass of its
// own: Boost's parser silently keeps the last of two equal names. It also reads numbers to the last
// bit, where Boost's may be off by one or two units (104290275.48302239 becomes ...241).
class UniqueNames {
 public:
  static constexpr std::size_t max_object_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_array_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_key_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_string_size = static_cast<std::size_t>(-1);

  const std::string& duplicate() const { return duplicate_; }
  bool has_duplicate() const { return has_duplicate_; }
  // Numbers with a point or an exponent, or beyond 64 bits, in the order of the document.
  const std::vector<double>& doubles() const { return doubles_; }
  bool is_too_large() const { return is_too_large_; }

  bool on_document_begin(boost::system::error_code&) { return true; }
  bool on_document_end(boost::system::error_code&) { return true; }
  bool on_object_begin(boost::system::error_code&) {
    objects_.emplace_back();
    return true;
  }
  bool on_object_end(std::size_t, boost::system::error_code&) {
    objects_.pop_back();
    return true;
  }
  bool on_array_begin(boost::system::error_code&) { return true; }
  bool on_array_end(std::size_t, boost::system::error_code&) { return true; }
  bool on_key_part(bj::string_view part, std::size_t, boost::system::error_code&) {
    name_.append(part.data(), part.size());
    return true;
  }
  bool on_key(bj::string_view part, std::size_t, boost::system::error_code& code) {
    name_.append(part.data(), part.size());
    if (!objects_.back().insert(name_).second) {
      has_duplicate_ = true;
      duplicate_ = name_;
      code = bj::error::extra_data;  // any error stops the parser; the caller asks has_duplicate
      return false;
    }
    name_.clear();
    return true;
  }
  bool on_string_part(bj::string_view, std::size_t, boost::system::error_code&) { return true; }
  bool on_string(bj::string_view, std::size_t, boost::system::error_code&) { return true; }
  bool on_number_part(bj::string_view part, boost::system::error_code&) {
    number_.append(part.data(), part.size());
    return true;
  }
  bool on_int64(std::int64_t, bj::string_view, boost::system::error_code&) {
    number_.clear();
    return true;
  }
  bool on_uint64(std::uint64_t, bj::string_view, boost::system::error_code&) {
    number_.clear();
    return true;
  }
  bool on_double(double roughly, bj::string_view part, boost::system::error_code& code) {
    number_.append(part.data(), part.size());
    double exactly = 0;
    // What is too small for a double is 0, which Boost knows; what is too large is of no use.
    if (std::from_chars(number_.data(), number_.data() + number_.size(), exactly).ec != std::errc())
      exactly = roughly;
    number_.clear();
    if (!std::isfinite(exactly)) {
      is_too_large_ = true;
      code = bj::error::extra_data;
      return false;
    }
    doubles_.push_back(exactly);
    return true;
  }
  bool on_bool(bool, boost::system::error_code&) { return true; }
  bool on_null(boost::system::error_code&) { return true; }
  bool on_comment_part(bj::string_view, boost::system::error_code&) { return true; }
  bool on_comment(bj::string_view, boost::system::error_code&) { return true; }

 private:
  std::vector<std::unordered_set<std::string, SeededHash, std::equal_to<>>> objects_;
  std::string name_, number_;
  std::string duplicate_;
  std::vector<double> doubles_;
  bool has_duplicate_ = false, is_too_large_ = false;
};

// Long names come from hostile files; a message stays one line.
std::string shortened(const std::string& name) {
  constexpr std::size_t longest = 200;
  return name.size() <= longest ? name : name.substr(0, longest) + "...";
}

// Gives the value its doubles; both are in the order of the document.
void set_doubles(bj::value& value, const double*& next) {
  if (value.is_double()) value = *next++;
  if (value.is_array())
    for (bj::value& item : value.get_array()) set_doubles(item, next);
  if (value.is_object())
    for (auto& member : value.get_object()) set_doubles(member.value(), next);
}

// Refuses what the value parser would also refuse, with the byte where reading stopped. Gives the doubles.
std::vector<double> require_sound(std::string_view text, std::string_view what,
                                  const bj::parse_options& options) {
  bj::basic_parser<UniqueNames> parser(options);
  boost::system::error_code code;
  const std::size_t read = parser.write_some(false, text.data(), text.size(), code);
  if (parser.handler().has_duplicate())
    fail(Code::bad_checkpoint, "{}: two members are named \"{}\" in one object, the second at byte {}", what,
         shortened(parser.handler().duplicate()), read);
  if (parser.handler().is_too_large())
    fail(Code::bad_checkpoint, "{}: a number beyond 1.8e308 before byte {}", what, read);
  if (code == bj::error::too_deep)
    fail(Code::bad_checkpoint, "{}: JSON nested deeper than {} levels at byte {}", what, options.max_depth,
         read);
  if (code)
    fail(Code::bad_checkpoint, "{}: not valid JSON at byte {} of {}: {}", what, read, text.size(),
         code.message());
  const std::size_t rest = text.find_first_not_of(" \t\r\n", read);
  if (rest != std::string_view::npos)
    fail(Code::bad_checkpoint, "{}: text after the JSON document, at byte {} of {}", what, rest, text.size());
  return parser.handler().doubles();
}

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

}  // namespace

bj::value parse(std::string_view text, std::string_view what, const Limits& limits) {
  if (text.size() > limits.text_bytes_max)
    fail(Code::bad_checkpoint, "{}: {} bytes of JSON; the limit is {}", what, text.size(),
         limits.text_bytes_max);
  bj::parse_options options;
  options.max_depth = limits.depth_max;
  const std::vector<double> doubles = require_sound(text, what, options);
  boost::system::error_code code;
  bj::value value = bj::parse(text, code, {}, options);
  if (code) fail(Code::bad_checkpoint, "{}: not valid JSON: {}", what, code.message());
  const double* next = doubles.data();
  if (!doubles.empty()) set_doubles(value, next);
  return value;
}

bj::value parse_file(const std::filesystem::path& path, const Limits& limits) {
  return parse(read_text_file(path, limits.text_bytes_max), path.string(), limits);
}

std::string read_text_file(const std::filesystem::path& path, std::size_t bytes_max) {
  // Nonblocking, so that a pipe instead of a file is refused instead of waited for.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.number() < 0) fail(Code::io, "{}: cannot be opened: {}", path.string(), std::strerror(errno));
  struct stat facts {};
  if (::fstat(file.number(), &facts) != 0)
    fail(Code::io, "{}: cannot be examined: {}", path.string(), std::strerror(errno));
  if (!S_ISREG(facts.st_mode)) fail(Code::io, "{}: is not a regular file", path.string());
  const auto size = static_cast<std::size_t>(facts.st_size);
  if (size > bytes_max)
    fail(Code::bad_checkpoint, "{}: {} bytes; at most {} are expected here", path.string(), size, bytes_max);
  std::string text(size, '\0');
  std::size_t have = 0;
  while (have < size) {
    const ssize_t got = ::read(file.number(), text.data() + have, size - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      fail(Code::io, "{}: reading failed at byte {}: {}", path.string(), have, std::strerror(errno));
    if (got == 0) fail(Code::io, "{}: ended at byte {} of {} while being read", path.string(), have, size);
    have += static_cast<std::size_t>(got);
  }
  return text;
}

}  // namespace fourfold::json
