#include "hub/web.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <ctime>
#include <thread>
#include <utility>

#include "base/error.h"

namespace fourfold::hub {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
constexpr std::size_t kWholeBytesMax = std::size_t{64} << 20;
constexpr std::size_t kErrorBytesMax = std::size_t{1} << 20;  // read of an answer without content
constexpr std::int64_t kWaitMax = 1'000'000;                  // s; beyond it all waits are the same
constexpr const char* kLater = "Later the same command goes on where this one was.";
constexpr const char* kUnreached =
    "Is there a network? HTTPS_PROXY names a proxy to ask through, HF_ENDPOINT another hub or a mirror; "
    "HF_HUB_OFFLINE=1 takes what is in the cache and asks nobody.";

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

// Somebody else's trouble that may pass.
bool may_pass(int status) { return status == 408 || status == 429 || (status >= 500 && status <= 599); }

// "bytes 0-99/1234" as three numbers.
bool parse_content_range(const std::string& text, std::uint64_t& first, std::uint64_t& last,
                         std::uint64_t& size) {
  unsigned long long a = 0, b = 0, c = 0;
  int used = 0;
  if (std::sscanf(text.c_str(), "bytes %llu-%llu/%llu%n", &a, &b, &c, &used) != 3 ||
      used != static_cast<int>(text.size()))
    return false;
  first = a, last = b, size = c;
  return true;
}

// The head of an answer with content must be about the bytes that were asked for. (What may be better at the
// next attempt is io, and gets the name of the file where it is given up.)
void require_range(const Question& question, const http::Head& head) {
  if (!question.end) return;
  if (head.status() == 200)
    fail_with_hint(Code::invalid_request,
                   "The server, or a proxy before it, must serve parts of files (Range).",
                   "{}: the server sends all of the file where a part was asked for", question.what);
  std::uint64_t first = 0, last = 0, size = 0;
  const std::string range = head.field("Content-Range");
  if (!parse_content_range(range, first, last, size))
    fail(Code::io, "the server's Content-Range is '{}'", range);
  if (size != question.size)
    fail(Code::invalid_request, "{}: the server has {} bytes of it, and the hub's listing says {}",
         question.what, size, question.size);
  if (first != question.begin || last + 1 > *question.end)
    fail(Code::io, "asked for bytes {} to {}, the server sends {}", question.begin, *question.end - 1, range);
}

}  // namespace

std::optional<http::Url> Place::get() const {
  const std::scoped_lock lock(mutex_);
  return url_;
}

void Place::set(const std::optional<http::Url>& url) {
  const std::scoped_lock lock(mutex_);
  url_ = url;
}

milliseconds pause_after(int failed) { return milliseconds(125 << std::clamp(failed, 1, 8)); }

std::optional<seconds> parse_retry_after(std::string_view text, std::int64_t now) {
  std::int64_t count = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (status == std::errc{} && end == text.data() + text.size())
    return count >= 0 ? std::optional(seconds(std::min(count, kWaitMax))) : std::nullopt;
  std::tm date{};
  const std::string copy(text);
  const char* rest = ::strptime(copy.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &date);
  if (rest == nullptr || *rest != '\0') return std::nullopt;
  return seconds(std::max<std::int64_t>(0, ::timegm(&date) - now));
}

// One request, its redirects, and what came of it.
struct Web::Attempt {
  Question& question;
  const Take& take;
  http::Url at;
  std::string location = {};  // of a redirect
  int status = 0;
  bool checked = false;  // the head of an answer with content was looked at
  std::optional<seconds> wait = {};
  std::string error_code = {}, error_message = {};  // as the hub's fields have them
  std::string whole = {};  // what came without a range; it cannot be continued, so it is handed on at its end
  bool took = false;       // a byte of content
  std::size_t other_bytes = 0;  // of redirects and errors
};

Web::Web(const Settings& settings, Say say)
    : settings_(settings), say_(std::move(say)), endpoint_(http::parse_link(settings.endpoint)) {
  session_.proxies = settings.proxies;
}

// The token is for the hub alone: whoever a redirect names gets none.
http::Fields Web::fields_for(const http::Url& at, const Question& question) const {
  http::Fields fields{{"User-Agent", settings_.user_agent}};
  if (!settings_.token.empty() && http::same_origin(at, endpoint_))
    fields["Authorization"] = "Bearer " + settings_.token;
  if (question.end) fields["Range"] = fourfold::format("bytes={}-{}", question.begin, *question.end - 1);
  return fields;
}

void Web::hear(Attempt& attempt, const http::Head& head, std::string_view part) {
  attempt.status = head.status();
  if (attempt.status != 200 && attempt.status != 206) {
    attempt.location = is_redirect(attempt.status) ? head.field("Location") : "";
    attempt.error_code = head.field("X-Error-Code");
    attempt.error_message = head.field("X-Error-Message");
    attempt.wait = parse_retry_after(head.field("Retry-After"), std::time(nullptr));
    return;
  }
  Question& question = attempt.question;
  if (!std::exchange(attempt.checked, true)) require_range(question, head);
  if (question.end && part.size() > *question.end - question.begin)
    fail(Code::invalid_request, "{}: the server sends more than was asked for", question.what);
  if (!question.end) {
    attempt.whole += part;
    if (attempt.whole.size() > kWholeBytesMax)
      fail(Code::invalid_request, "{}: the answer is over {} bytes", question.what, kWholeBytesMax);
    return;
  }
  attempt.took |= !part.empty();
  question.begin += part.size();
  attempt.take(part);
}

void Web::try_once(Attempt& attempt, Place* place) {
  for (int redirects = 0; redirects <= kRedirectsMax; ++redirects) {
    attempt.location.clear();
    session_.get(attempt.at, fields_for(attempt.at, attempt.question),
                 [&](const http::Head& head, std::string_view part) {
                   hear(attempt, head, part);
                   if (attempt.status != 200 && attempt.status != 206) attempt.other_bytes += part.size();
                   return attempt.other_bytes <= kErrorBytesMax;
                 });
    if (!is_redirect(attempt.status)) return;
    if (attempt.location.empty())
      fail(Code::invalid_request, "{}: {} redirects to nowhere", attempt.question.what, attempt.at.host);
    const http::Url next = http::redirected(attempt.at, attempt.location);
    if (attempt.at.tls && !next.tls)
      fail(Code::invalid_request, "{}: {} redirects from https to {}, which is not encrypted",
           attempt.question.what, attempt.at.host, link_text(next).substr(0, 200));
    attempt.at = next;
    if (place != nullptr) place->set(next);
  }
  fail(Code::invalid_request, "{}: more than {} redirects, the last to {}", attempt.question.what,
       kRedirectsMax, attempt.at.host);
}

void Web::get(Question question, const Take& take, Place* place) {
  const http::Url first = http::parse_link(settings_.endpoint + question.path);
  for (int failed = 0;;) {
    const std::optional<http::Url> known = place == nullptr ? std::nullopt : place->get();
    Attempt attempt{.question = question, .take = take, .at = known.value_or(first)};
    milliseconds pause{};
    std::string why;
    try {
      try_once(attempt, place);
      if (attempt.status == 200 || attempt.status == 206) {
        if (!question.end) return take(attempt.whole);
        if (question.begin == *question.end) return;
        why = "the answer was shorter than asked for";
      } else if (!may_pass(attempt.status) && http::same_origin(attempt.at, endpoint_)) {
        refuse(question, attempt.status, attempt.error_code, attempt.error_message);
      } else {  // of another host also a refusal: links expire
        why = fourfold::format("{} answered {}", attempt.at.host, attempt.status);
      }
    } catch (const Error& error) {
      if (error.code() != Code::io) throw;
      why = error.what();
      if (!attempt.took && failed + 1 >= question.attempts) {
        // No answer at all, or none of whoever a redirect named.
        const bool unreached = attempt.status == 0 || is_redirect(attempt.status);
        throw Error(error.code(), question.what + ": " + why,
                    !error.hint().empty() ? error.hint()
                    : unreached           ? kUnreached
                                          : kLater);
      }
    }
    if (place != nullptr) place->set(std::nullopt);
    failed = attempt.took ? 1 : failed + 1;
    pause = pause_after(failed);
    if (attempt.wait) pause = *attempt.wait;
    if (failed >= question.attempts || pause > kLongestWait)
      fail_with_hint(Code::io, kLater, "{}: {}{}", question.what, why,
                     attempt.wait ? fourfold::format(", and asks to wait {} s", attempt.wait->count()) : "");
    if (attempt.wait || failed > 1)
      say_(fourfold::format("{}: {}; again in {} s", question.what, why, (pause.count() + 999) / 1000));
    std::this_thread::sleep_for(pause);
  }
}

void Web::refuse(const Question& question, int status, const std::string& code,
                 const std::string& message) const {
  const std::string who = !settings_.token.empty()  ? "with the token of " + settings_.token_from
                          : settings_.token_is_kept ? "without a token, which is not sent over http"
                                                    : "without a token";
  const std::string said = message.empty() ? "" : ": " + message.substr(0, 300);
  if (code == "GatedRepo" || status == 403)
    fail_with_hint(Code::invalid_request,
                   fourfold::format("Ask for access on {}, then set HF_TOKEN to a token that may read.",
                                    settings_.endpoint),
                   "{}: the hub gives no access {} ({}){}", question.what, who, status, said);
  if (code == "RevisionNotFound")
    fail_with_hint(Code::invalid_request, "Leave --revision out for the newest.",
                   "{}: there is no such revision ({}){}", question.what, status, said);
  if (status == 401 || status == 404)
    fail_with_hint(Code::invalid_request,
                   settings_.token.empty()
                       ? "Check the name; for a private or gated model set HF_TOKEN. (A folder of this name "
                         "is not here either.)"
                       : "Check the name, and that this token may read the model.",
                   "{}: {} has no such model, or none to be read {} ({}){}", question.what, endpoint_.host,
                   who, status, said);
  fail(Code::invalid_request, "{}: {} answered {}{}", question.what, endpoint_.host, status, said);
}

}  // namespace fourfold::hub
