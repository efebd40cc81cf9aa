// Asks the hub: redirects, the token, waiting and trying again, and what a refusal means.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "http/session.h"
#include "hub/settings.h"

namespace fourfold::hub {

// Where and what; of a file the bytes from `begin` on.
struct Question {
  std::string path;  // behind the endpoint, "/api/models/..."
  std::string what;  // for messages: "org/name" or "org/name: config.json"
  std::uint64_t begin = 0;
  std::optional<std::uint64_t> end = {};  // with it a part of a file, "Range"; without: all of it
  std::uint64_t size = 0;                 // of the whole file, where `end` is given
  int attempts = 6;                       // until it is given up, where no byte comes in between
};

// Where a file's bytes lie, once a redirect has said so; shared by those who fetch its parts.
class Place {
 public:
  std::optional<http::Url> get() const;
  void set(const std::optional<http::Url>& url);

 private:
  mutable std::mutex mutex_;
  std::optional<http::Url> url_;
};

using Take = std::function<void(std::string_view part)>;
using Say = std::function<void(const std::string& text)>;

// How long to wait before the attempt after the `failed`th in a row.
std::chrono::milliseconds pause_after(int failed);
// What a Retry-After field asks for: seconds, or a date. Nothing when it is neither.
std::optional<std::chrono::seconds> parse_retry_after(std::string_view text, std::int64_t now);

// For one thread; connections are kept.
class Web {
 public:
  // `say` hears of waiting.
  Web(const Settings& settings, Say say);

  // All of what was asked for goes to `take`, each byte once: where a connection is cut the rest is asked
  // for. Throws io, or invalid_request where the hub
  // says no; the hint says what to do.
  void get(Question question, const Take& take, Place* place = nullptr);

  static constexpr int kRedirectsMax = 5;
  static constexpr std::chrono::seconds kLongestWait{300};

 private:
  struct Attempt;

  http::Fields fields_for(const http::Url& at, const Question& question) const;
  void try_once(Attempt& attempt, Place* place);
  void hear(Attempt& attempt, const http::Head& head, std::string_view part);
  [[noreturn]] void refuse(const Question& question, int status, const std::string& code,
                           const std::string& message) const;

  const Settings& settings_;
  Say say_;
  http::Url endpoint_;
  http::Session session_;
};

}  // namespace fourfold::hub
