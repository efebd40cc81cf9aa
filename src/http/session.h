// GET after GET from one server after another, over connections that are kept while they serve: for
// downloads. Redirects are answers like others; whoever asks decides what to tell the next host.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "http/proxy.h"
#include "http/url.h"

namespace fourfold::http {

class AnswerReader;
class Connection;

using Fields = std::map<std::string, std::string, std::less<>>;

// The head of an answer. Names of fields are asked for in any case.
class Head {
 public:
  explicit Head(const AnswerReader& reader) : reader_(reader) {}
  int status() const;
  std::string field(std::string_view name) const;

 private:
  const AnswerReader& reader_;
};

// Gets pieces of the body as they arrive, at least one (perhaps empty) once the head is there; returning
// false ends the request there. The head is valid during the call.
using HeadedPart = std::function<bool(const Head& head, std::string_view part)>;

class Session {
 public:
  Session();
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Throws io when the server cannot be reached, says nothing for `silence`, answers something else than
  // HTTP or cuts its answer off.
  void get(const Url& url, const Fields& fields, const HeadedPart& part);

  std::chrono::milliseconds silence{30'000};
  Proxies proxies;

 private:
  // False when a kept connection turned out to be closed, before anything was answered.
  bool exchange(const std::string& text, const HeadedPart& part, bool was_kept);

  std::unique_ptr<Connection> connection_;
  Url to_;  // whom it is connected to
};

}  // namespace fourfold::http
